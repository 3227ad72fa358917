"""What a large catalogue of the environment shop costs: CPU time to prepare it, memory to prepare and to play it.

    python benchmarks/shop_catalogue.py --products 100000 --out benchmarks/results/shop_catalogue.json

Each part runs in a process of its own, and the largest resident memory of that process is taken. An episode is played
by the solver, and searches of one, three and six words are timed beside it.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measured(part: str, *words: str) -> dict[str, float]:
    """What one part says of itself."""
    line = [sys.executable, __file__, "--part", part, *words]
    ended = subprocess.run(line, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def prepare(products: int, seed: int, folder: Path) -> dict[str, float]:
    from heedful_envs.shop.catalogue.prepare import prepare_drawn

    prepare_drawn(products, seed, folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return costs() | {"disk_mb": round(size / 1e6, 1)}


def stream(products: int, folder: Path) -> dict[str, float]:
    """Rows of WebShop's form with long descriptions, prepared from their file."""
    from heedful_envs.shop.catalogue.prepare import Sources, prepare

    rows, rng = folder / "items_many.json", random.Random(0)
    words = [f"word{number}" for number in range(20_000)]
    with rows.open("w", encoding="utf-8") as file:
        for number in range(products):
            text = " ".join(rng.choices(words, k=400))
            row = {"asin": f"B{number:09}", "name": text[:80], "full_description": text}
            row |= {
                "small_description": [text[:300]],
                "pricing": "$9.99",
                "product_category": "A › B",
                "query": "word",
                "customization_options": "",
            }
            file.write(("[" if not number else ",\n") + json.dumps(row))
        file.write("]")
    before = costs()["cpu_s"]
    prepare(Sources(items=rows), folder / "made", "words")
    return costs() | {"cpu_s": round(costs()["cpu_s"] - before, 1), "file_mb": round(rows.stat().st_size / 1e6, 1)}


def play(folder: Path, episodes: int) -> dict[str, float]:
    from heedful_envs.shop.environment import Shop

    env = Shop(catalogue=str(folder))
    opened = costs()
    times, searches = [], []
    for seed in range(episodes):
        began = time.process_time()
        env.demonstrate(env.task(seed), random.Random(seed))
        times.append(time.process_time() - began)
        words = env.goal(seed).text.split()
        for count in (1, 3, 6):
            began = time.process_time()
            env.stock(seed).search(" ".join(random.Random(seed).sample(words, count)), 50)
            searches.append(time.process_time() - began)
    return costs() | {
        "open_rss_mb": opened["rss_mb"],
        "episode_cpu_ms": round(1000 * statistics.median(times), 1),
        "search_cpu_ms": round(1000 * statistics.median(searches), 2),
        "search_cpu_ms_p99": round(1000 * statistics.quantiles(searches, n=100)[98], 2),
    }


def costs() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_s": round(used.ru_utime + used.ru_stime, 1), "rss_mb": round(used.ru_maxrss / 1024, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=100_000)
    parser.add_argument("--streamed", type=int, default=20_000, help="rows of the file that is streamed")
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", choices=("prepare", "stream", "play"))
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.part:
        parts = {
            "prepare": lambda: prepare(asked.products, asked.seed, asked.folder),
            "stream": lambda: stream(asked.streamed, asked.folder),
            "play": lambda: play(asked.folder, asked.episodes),
        }
        print(json.dumps(parts[asked.part]()))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "drawn"
        sizes = ("--products", str(asked.products), "--seed", str(asked.seed))
        found = {
            "products": asked.products,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "prepare": measured("prepare", *sizes, "--folder", str(folder)),
            "play": measured("play", "--folder", str(folder), "--episodes", str(asked.episodes)),
            "stream": measured("stream", "--folder", scratch, "--streamed", str(asked.streamed)),
            "streamed": asked.streamed,
        }
    print(json.dumps(found, indent=1))
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
