"""Accuracy of the diagnostics where the truth is known: bias, coverage, errors of tests, planted templates.

Every case has its own generator, so cases can be added without changing others. Every number comes from the functions
that a run calls. No model is involved. It takes about two minutes on one core.

    python benchmarks/coverage.py                   # writes benchmarks/results/coverage.json and coverage.md

In all channels the prompts are drawn again for every batch. I(X;Z) is the value of the whole population:

- `gaussian`: prompts x ~ N(0, 1), thoughts z ~ N(x, s^2), I = log(1 + 1 / s^2) / 2. Its information has no ceiling.
- `bits`: a prompt is 16 bits, a thought its copy, each bit flipped with probability e: I = 16 (log 2 - h(e)).
- `templates`: as `bits`, but half of the thoughts are 16 random bits marked as a template: I = 16 (log 2 - h(e)) / 2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import binom

from heedful.diagnostics.cross_scores.information import information
from heedful.diagnostics.cross_scores.retrieval import p_value
from heedful.diagnostics.cross_scores.score_matrix import score_matrix
from heedful.diagnostics.text import text_metrics
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.types import CrossScores, Metric

Floats = npt.NDArray[np.float64]
Row = dict[str, Any]

BITS = 16
DESIGNS = ((16, 2), (16, 8), (32, 8))
"""(prompts, thoughts per prompt): the cheap measurement, and two full ones."""
INFORMATION = {
    "gaussian": (0.1, 0.5, 1.0, 2.0, 4.0),
    "bits": (0.1, 0.5, 1.0, 2.0, 6.0),
    "templates": (0.1, 0.5, 1.0, 4.0),
}
"""True mutual information in nats. The last value of each channel is near the ceiling."""
READ = ("mi", "mi_loo", "gap_per_token", "entropy_conditional", "accuracy", "accuracy_2way", "accuracy_8way")
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
JUDGED = ("text/judge_accuracy", "text/judge_accuracy_8way", "text/template_share")


def generator(*names: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(names).encode()))


def flip_chance(nats: float) -> float:
    """The flip probability that leaves `nats` of information in 16 bits."""

    def left(e: float) -> float:
        return BITS * (math.log(2) + e * math.log(e) + (1 - e) * math.log(1 - e))

    return float(brentq(lambda e: left(e) - nats, 1e-9, 0.5 - 1e-12))


def gaussian(rng: np.random.Generator, prompts: int, members: int, nats: float) -> CrossScores:
    noise = 1 / math.sqrt(math.exp(2 * nats) - 1)
    x_N, own_M = rng.normal(size=prompts), np.repeat(np.arange(prompts), members)
    z_M = x_N[own_M] + noise * rng.normal(size=len(own_M))
    scores_MN = -((z_M[:, None] - x_N) ** 2) / (2 * noise**2) - math.log(noise * math.sqrt(2 * math.pi))
    return CrossScores(scores_MN, [1] * len(own_M), own_M.tolist())  # type: ignore[arg-type]


def bits(rng: np.random.Generator, prompts: int, members: int, nats: float, share: float = 0.0) -> CrossScores:
    """Scores of copied bits. A fraction `share` of the thoughts are recognisable random templates of equal length."""
    flip = flip_chance(nats / (1 - share))
    drawn_N = rng.choice(2**BITS, prompts, replace=False)
    x_NT, own_M = drawn_N[:, None] >> np.arange(BITS) & 1, np.repeat(np.arange(prompts), members)
    z_MT = x_NT[own_M] ^ (rng.random((len(own_M), BITS)) < flip)
    distance_MN = (z_MT[:, None] != x_NT).sum(axis=2)
    scores_MN = distance_MN * math.log(flip) + (BITS - distance_MN) * math.log(1 - flip)
    if share:
        template_M = rng.random(len(own_M)) < share
        scores_MN = np.where(template_M[:, None], math.log(share) - BITS * math.log(2), math.log(1 - share) + scores_MN)
    return CrossScores(scores_MN, [BITS] * len(own_M), own_M.tolist(), noise=1e-9)


def templates(rng: np.random.Generator, prompts: int, members: int, nats: float) -> CrossScores:
    return bits(rng, prompts, members, nats, share=0.5)


CHANNELS: dict[str, Callable[[np.random.Generator, int, int, float], CrossScores]] = {
    "gaussian": gaussian,
    "bits": bits,
    "templates": templates,
}


def channel_row(channel: str, prompts: int, members: int, nats: float, batches: int) -> Row:
    """Means over the batches, and how often the interval contained the mean, which is the expected value at this N."""
    rng = generator(channel, prompts, members, nats)
    readings = []
    for _ in range(batches):
        metrics = information(CHANNELS[channel](rng, prompts, members, nats), "simulated", rng).metrics
        readings.append({metric.name.rpartition("/")[2]: metric for metric in metrics})
    row: Row = {"channel": channel, "prompts": prompts, "members": members, "nats": nats, "batches": batches}
    row["saturated"] = float(np.mean([reading["mi_saturated"].value for reading in readings]))
    saturated_with_interval = sum(r["mi_saturated"].value == 1 and r["mi"].low is not None for r in readings)
    row["saturated_with_interval"] = saturated_with_interval
    for name in READ:
        row[name] = _expected([reading[name] for reading in readings])
    row["of_ceiling"] = row["mi"]["mean"] / math.log(prompts)
    return row


def _expected(metrics: Sequence[Metric]) -> Row:
    """The mean with its standard error, the number of values with an interval, and the share that contained the
    mean."""
    values = np.array([metric.value for metric in metrics], dtype=np.float64)
    mean = float(values.mean())
    error = float(values.std(ddof=1) / math.sqrt(len(values)))
    intervals = [(metric.low, metric.high) for metric in metrics if metric.low is not None and metric.high is not None]
    held = [low <= mean <= high for low, high in intervals]
    coverage = float(np.mean(held)) if held else None
    return {"mean": mean, "error": error, "intervals": len(held), "coverage": coverage}


def null_scores(kind: str, rng: np.random.Generator, prompts: int, own_M: npt.NDArray[np.intp]) -> Floats:
    """Scores without information about the own prompt.

    `hubs`: some prompts win often. `shared`: the thoughts of a group have an accident in common."""
    scores_MN = rng.normal(size=(len(own_M), prompts))
    if "hubs" in kind:
        scores_MN += rng.normal(size=prompts)
    if "shared" in kind:
        scores_MN += rng.normal(size=(prompts, prompts))[own_M]
    return scores_MN


def null_row(kind: str, batches: int, prompts: int = 16, members: int = 8) -> Row:
    """How often two tests of retrieval accuracy give a false positive at 5%."""
    rng, own_M = generator("null", kind), np.repeat(np.arange(prompts), members)
    binomial = permutation = 0
    for _ in range(batches):
        scores_MN = null_scores(kind, rng, prompts, own_M)
        hits = int((scores_MN.argmax(axis=1) == own_M).sum())
        binomial += binom.sf(hits - 1, len(own_M), 1 / prompts) <= 0.05
        matrix = score_matrix(CrossScores(scores_MN, [1] * len(own_M), own_M.tolist()))  # type: ignore[arg-type]
        permutation += p_value(matrix, rng) <= 0.05
    return {"null": kind, "batches": batches, "binomial": binomial / batches, "permutation": permutation / batches}


def planted_thoughts(share: float, seeds: int, prompts: int = 16, members: int = 8) -> Iterator[list[list[str]]]:
    """The first thoughts of FrozenLake's solver. A fraction `share` are fluent sentences that ignore the map.

    Maps and thoughts are new for each seed."""
    env = FrozenLake(template=share)
    tasks = evaluation_tasks(env, "train", prompts * seeds)
    for seed in range(seeds):
        rng, drawn = random.Random(seed), tasks[prompts * seed : prompts * (seed + 1)]
        yield [[re.split("</?think>", env.demonstrate(task, rng)[0][1])[1] for _ in range(members)] for task in drawn]


def planted_row(share: float, seeds: int) -> Row:
    """One value as a run would show it, and means over values."""
    readings = []
    for seed, thoughts in enumerate(planted_thoughts(share, seeds)):
        found = text_metrics(thoughts, np.random.default_rng(seed))
        readings.append({metric.name: metric for metric in found})
    row: Row = {"share": share, "seeds": seeds}
    for name in JUDGED:
        column = [reading[name] for reading in readings]
        row[name] = {"first": [column[0].value, column[0].low, column[0].high], **_expected(column)}
    return row


def simulate(batches: int, nulls: int, seeds: int) -> Row:
    channels = [
        channel_row(channel, *design, nats, batches)
        for channel in CHANNELS
        for design in DESIGNS
        for nats in INFORMATION[channel]
    ]
    kinds = ("iid", "hubs", "shared", "hubs and shared")
    return {
        "benchmark": "coverage",
        "channels": channels,
        "nulls": [null_row(kind, nulls) for kind in kinds],
        "planted": [planted_row(planted, seeds) for planted in SHARES],
    }


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bias_table(result: Row) -> str:
    head = ["channel", "N x K", "true I", "mean `mi`", "mean `mi_loo`", "`mi` / ceiling", "saturated"]
    rows = [
        [
            row["channel"],
            f"{row['prompts']} x {row['members']}",
            f"{row['nats']:g}",
            *(f"{row[name]['mean']:.3f} ({row[name]['mean'] - row['nats']:+.3f})" for name in ("mi", "mi_loo")),
            f"{row['of_ceiling']:.0%}",
            f"{row['saturated']:.0%}",
        ]
        for row in result["channels"]
    ]
    return table(head, rows)


def coverage_table(result: Row) -> str:
    """Table by case. A star: some batches had no interval. A dash: fewer than a quarter had one."""
    rows = []
    for row in result["channels"]:
        cells = [row[name] for name in READ]
        rows.append([row["channel"], f"{row['prompts']} x {row['members']}", f"{row['nats']:g}"])
        for cell in cells:
            star = "*" if cell["intervals"] < row["batches"] else ""
            rows[-1].append(f"{share(cell)}{star}" if 4 * cell["intervals"] >= row["batches"] else "-")
    return table(["channel", "N x K", "true I", *(f"`{name}`" for name in READ)], rows)


def share(cell: Row) -> str:
    return f"{cell['coverage']:.3f}".removeprefix("0")


def null_table(result: Row) -> str:
    rows = [[row["null"], f"{row['binomial']:.3f}", f"{row['permutation']:.3f}"] for row in result["nulls"]]
    return table(["null", "binomial test", "`p_value` (group permutation)"], rows)


def planted_table(result: Row) -> str:
    head = ["templates", *(column for name in JUDGED for column in (f"`{name}`, one reading", "mean", "coverage"))]
    rows = []
    for row in result["planted"]:
        rows.append([f"{row['share']:.0%}"])
        for cell in (row[name] for name in JUDGED):
            value, low, high = cell["first"]
            interval = "saturated" if low is None else f"[{low:.2f}, {high:.2f}]"
            star = "*" if cell["intervals"] < row["seeds"] else ""
            rows[-1] += [f"{value:.2f} {interval}", f"{cell['mean']:.3f} ± {cell['error']:.3f}", f"{share(cell)}{star}"]
    return table(head, rows)


TABLES = {"bias": bias_table, "coverage": coverage_table, "nulls": null_table, "planted": planted_table}


def page_of(result: Row) -> str:
    """`coverage.md`: every table between `<!-- table: NAME -->` and `<!-- end -->`."""
    head = "# Diagnostics where the truth is known\n\nWritten by `benchmarks/coverage.py`. Do not edit."
    tables = [f"<!-- table: {name} -->\n{make(result)}\n<!-- end -->" for name, make in TABLES.items()]
    return "\n\n".join([head, *tables]) + "\n"


def main() -> None:
    arguments = _arguments()
    os.nice(10)
    started = time.process_time()
    result = simulate(arguments.batches, arguments.nulls, arguments.seeds)
    out: Path = arguments.out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(page_of(result), encoding="utf-8")
    print(f"Wrote {out} and its tables in {time.process_time() - started:.0f} CPU-seconds.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=500, help="simulated measurements per channel")
    parser.add_argument("--nulls", type=int, default=2000, help="simulated measurements per null")
    parser.add_argument("--seeds", type=int, default=100, help="readings per share of templates")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "coverage.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
