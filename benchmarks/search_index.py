"""What an index of passages costs: CPU seconds to build, bytes on disk, memory and milliseconds when searched.

    python benchmarks/search_index.py                       # 10^5 and 10^6 passages
    python benchmarks/search_index.py --sizes 10000 --out /tmp/search_index

Passages have 100 words of a Zipf vocabulary of 200,000. A query is one rare and four ordinary words of a passage. Each
figure is from a process of its own. CPU seconds are of that process and its threads. Wall times depend on what else the
machine does, so the page names the load.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

VOCABULARY = 200_000
WORDS = 100
QUERIES = 300
RESULTS = 5
RESULTS_FOLDER = Path(__file__).parent / "results"


def passages(count: int) -> Iterator[dict[str, str]]:
    """Invented passages: words are w0, w1, ... by rank."""
    rng = np.random.default_rng(16)
    shares = 1 / np.arange(1, VOCABULARY + 1)
    bounds = np.cumsum(shares / shares.sum())
    names = [f"w{rank}" for rank in range(VOCABULARY + 1)]
    for first in range(0, count, 10_000):
        ranks = np.searchsorted(bounds, rng.random((min(10_000, count - first), WORDS)))
        for place, row in enumerate(ranks.tolist(), first):
            text = " ".join(map(names.__getitem__, row))
            yield {"id": str(place), "contents": f'"Title {place % 50_000}"\n{text}'}


def write(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in passages(count))


def memory() -> dict[str, float]:
    """MB of this process: all that is resident, and what is its own."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "RssAnon", "VmHWM"))}
    return {name: round(int(kilobytes) / 1024, 1) for name, kilobytes in fields.items()}


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def build(corpus: Path, out: Path) -> dict[str, object]:
    from heedful_envs.search_qa.index_command import index_file

    began, used = time.perf_counter(), cpu()
    folder = index_file(corpus, out)
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return {
        "folder": str(folder),
        "cpu_seconds": round(cpu() - used, 1),
        "wall_seconds": round(time.perf_counter() - began, 1),
        "peak_mb": memory()["VmHWM"],
        "disk_mb": round(sum(sizes.values()) / 1e6, 1),
        "texts_mb": round(sizes[folder / "passages.jsonl"] / 1e6, 1),
    }


def search(folder: Path) -> dict[str, object]:
    from heedful_envs.search_qa.passages import open_index

    before, used = memory(), cpu()
    index = open_index(folder)
    opened, opening = memory(), cpu() - used
    rng = random.Random(16)
    times, cpus, found = [], [], 0
    for _ in range(QUERIES):
        place = rng.randrange(len(index))
        words = index.passage(place).text.split()
        words.sort(key=lambda word: int(word[1:]))
        query = " ".join([words[-1], *rng.sample(words[: WORDS // 2], 4)])
        began, used = time.perf_counter(), cpu()
        hits = index.search(query, RESULTS)
        times.append(1000 * (time.perf_counter() - began))
        cpus.append(1000 * (cpu() - used))
        found += any(each.id == str(place) for each in hits)
    after = memory()
    return {
        "open_cpu_seconds": round(opening, 2),
        "rss_before_mb": before["VmRSS"],
        "rss_open_mb": opened["VmRSS"],
        "rss_after_mb": after["VmRSS"],
        "own_after_mb": after["RssAnon"],
        "p50_ms": round(statistics.median(times), 2),
        "p99_ms": round(sorted(times)[int(0.99 * len(times))], 1),
        "cpu_p50_ms": round(statistics.median(cpus), 2),
        "source_found": found / QUERIES,
    }


def elsewhere(*words: str) -> dict[str, object]:
    """What this script prints in a process of its own."""
    command = [sys.executable, __file__, *words]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ended.stdout)


def measure(sizes: list[int], out: Path) -> None:
    """Measure each size, and write the results so far after each."""
    versions = {"python": sys.version.split()[0], "numpy": np.__version__}
    rows: list[dict[str, object]] = []
    result = {"cores": os.cpu_count(), "versions": versions, "queries": QUERIES, "results": RESULTS, "rows": rows}
    with tempfile.TemporaryDirectory(prefix="search_index_") as place:
        for size in sizes:
            corpus = Path(place, f"corpus_{size}.jsonl")
            write(corpus, size)
            load = os.getloadavg()[0]
            built = elsewhere("--build", str(corpus), place)
            searched = elsewhere("--search", str(built.pop("folder")))
            rows.append({"passages": size, "load": round(load, 1), **built, **searched})
            out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            out.with_suffix(".md").write_text(page(result), encoding="utf-8")
            corpus.unlink()


def page(result: dict[str, object]) -> str:
    """The table as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())  # type: ignore[attr-defined]
    lines = [
        "# The cost of an index of passages",
        "",
        f"`python benchmarks/search_index.py` on {result['cores']} cores ({versions}).",
        f"Passages of {WORDS} words of a Zipf vocabulary of {VOCABULARY:,}. Queries: {result['queries']}, of one rare",
        f"and four ordinary words of a passage, for {result['results']} results. One run. Other programs ran",
        "on the machine (column load), so CPU seconds and sizes count, and wall times are upper bounds.",
        "",
        "| passages | load | build: CPU s (wall) | peak MB | disk MB (texts) | RSS MB: open, after (own) "
        "| query ms: CPU p50, wall p50 (p99) | source found |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:  # type: ignore[attr-defined]
        lines.append(
            f"| {row['passages']:,} | {row['load']} | {row['cpu_seconds']} ({row['wall_seconds']}) "
            f"| {row['peak_mb']} | {row['disk_mb']} ({row['texts_mb']}) "
            f"| {row['rss_open_mb']}, {row['rss_after_mb']} ({row['own_after_mb']}) "
            f"| {row['cpu_p50_ms']}, {row['p50_ms']} ({row['p99_ms']}) | {row['source_found']:.0%} |"
        )
    lines += [
        "",
        "RSS counts pages of mapped files that other processes share. `own` is the memory of the process alone.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--out", type=Path, default=RESULTS_FOLDER / "search_index", help="without its ending")
    parser.add_argument("--build", nargs=2, metavar=("CORPUS", "OUT"))
    parser.add_argument("--search", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    if given.build:
        print(json.dumps(build(Path(given.build[0]), Path(given.build[1]))))
    elif given.search:
        print(json.dumps(search(given.search)))
    else:
        measure(given.sizes, given.out)


if __name__ == "__main__":
    main()
