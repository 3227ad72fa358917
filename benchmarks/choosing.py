"""Simulations of choosing tasks by few episodes, with known success probabilities: ranks, coverage, refills. No model.

Every case has its own generator and calls the functions that a run calls. It takes about three minutes on one core.
Intervals are 95%, over simulated batches or runs.

    python benchmarks/choosing.py         # writes benchmarks/results/choosing.json and docs/results/choosing.md
    python benchmarks/choosing.py --quick # a tenth of the cases, printed and not written

A task is its probability of success, drawn from one of three distributions:

- `u-shaped`: Beta(1/2, 1/2), most tasks almost solved or almost hopeless
- `flat`: uniform
- `hard`: Beta(1/2, 2), a mean of .2

Between two visits the log-odds of every task drift by a normal step: 0 (an unchanged policy), .3, or 1.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import kendalltau

from heedful.diagnostics.statistics.group_statistics import sample_variance
from heedful.filters import Ranking, TopK, TopP, Visit
from heedful.filters.shrinkage import Prior, expected_variances
from heedful.rollout.rounds import refill_size
from heedful.run.selection import readmit

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "choosing.md"

Row = dict[str, Any]

CHANCES = {"u-shaped": (0.5, 0.5), "flat": (1.0, 1.0), "hard": (0.5, 2.0)}
GROUPS = 16
ESTIMATES: Mapping[str, tuple[Prior | None, int, float]] = {
    "sample variance": (None, 0, 0.0),
    "shrunken, Jeffreys": ("jeffreys", 0, 0.0),
    "shrunken, fitted": ("batch", 0, 0.0),
    "1 visit, discount .5": ("jeffreys", 1, 0.5),
    "4 visits, discount .5": ("jeffreys", 4, 0.5),
    "1 visit, discount .8": ("jeffreys", 1, 0.8),
    "4 visits, discount .8": ("jeffreys", 4, 0.8),
    "8 visits, discount .8": ("jeffreys", 8, 0.8),
}
"""Name -> prior, earlier visits to each task, discount."""
MOST_VISITS = 8


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half of a 95% interval."""
    return fmean(values), 1.96 * stdev(values) / math.sqrt(len(values))


def spread_of(values: Sequence[float]) -> tuple[float, float]:
    """`interval` for values that may all be equal."""
    return interval(values) if len(set(values)) > 1 else (values[0], 0.0)


def play(p: float, size: int, rng: random.Random) -> list[float]:
    return [float(rng.random() < p) for _ in range(size)]


def drift(p: float, step: float, rng: random.Random) -> float:
    odds = math.log(p / (1 - p)) + rng.gauss(0, step)
    return 1 / (1 + math.exp(-max(-7.0, min(7.0, odds))))


# Ranks ----------------------------------------------------------------------------------------------------------------


def one_batch(chances: str, size: int, step: float, missing: float, rng: random.Random) -> dict[str, Row] | None:
    """Agreement of every estimate with the truth on one batch, or `None` if fewer than three groups vary."""

    def members() -> int:
        return max(2, sum(rng.random() >= missing for _ in range(size)))

    p_P = [min(max(rng.betavariate(*CHANCES[chances]), 1e-3), 1 - 1e-3) for _ in range(GROUPS)]
    earlier_PV: list[list[Visit]] = [[] for _ in p_P]
    for _ in range(MOST_VISITS):
        for earlier, p in zip(earlier_PV, p_P, strict=True):
            earlier.append(Visit.of(play(p, members(), rng)))
        p_P = [drift(p, step, rng) for p in p_P]
    values_PG = [play(p, members(), rng) for p in p_P]
    varies = [sample_variance(values) > 0 for values in values_PG]
    if sum(varies) < 3:
        return None
    truth = [p * (1 - p) if varying else 0.0 for p, varying in zip(p_P, varies, strict=True)]
    found = {}
    for name, (prior, visits, discount) in ESTIMATES.items():
        if prior is None:
            estimates = [sample_variance(values) for values in values_PG]
        else:
            past = [earlier[MOST_VISITS - visits :] for earlier in earlier_PV]
            estimates = expected_variances(values_PG, past, prior, discount)
        ranked = [each if varying else 0.0 for each, varying in zip(estimates, varies, strict=True)]
        found[name] = agreement(ranked, truth)
    return found


def agreement(ranked: Sequence[float], truth: Sequence[float]) -> Row:
    varying = [group for group, spread in enumerate(ranked) if spread > 0]
    tau = kendalltau([ranked[group] for group in varying], [truth[group] for group in varying]).statistic
    return {
        "tau": 0.0 if math.isnan(tau) else float(tau),  # all tied: no order at all
        "top_p": overlap(TopP(p=0.9), ranked, truth),
        "top_k": overlap(TopK(k=4), ranked, truth),
    }


def overlap(filter: Ranking, ranked: Sequence[float], truth: Sequence[float]) -> float:
    """Kept by both over kept by either."""
    one, other = ({i for i, verdict in enumerate(filter.rank(each)) if verdict.kept} for each in (ranked, truth))
    return len(one & other) / len(one | other)


def ranks(batches: int) -> Iterator[Row]:
    settings = [(chances, size, 0.3, 0.0) for chances in CHANCES for size in (4, 8, 16)]
    settings += [("u-shaped", 8, step, 0.0) for step in (0.0, 1.0)] + [("u-shaped", 8, 0.3, 0.25)]
    for chances, size, step, missing in settings:
        found = []
        for batch in range(batches):
            one = one_batch(
                chances, size, step, missing, random.Random(f"ranks {chances} {size} {step} {missing} {batch}")
            )
            if one is not None:
                found.append(one)
        for name in ESTIMATES:
            for measure in ("tau", "top_p", "top_k"):
                values = [one[name][measure] for one in found]
                gains = [one[name][measure] - one["sample variance"][measure] for one in found]
                yield {
                    "part": "ranks", "chances": chances, "size": size, "drift": step, "missing": missing,
                    "estimate": name, "measure": measure, "batches": len(found),
                    "mean": interval(values)[0], "half": interval(values)[1],
                    "gain": spread_of(gains)[0], "gain_half": spread_of(gains)[1],
                }  # fmt: skip


# Coverage -------------------------------------------------------------------------------------------------------------

POOL, STEPS, SIZE, PATIENCE, RATE = 96, 240, 8, 4, 3.0
GUARDS: Mapping[str, tuple[float, float]] = {
    "none": (0.0, 0.0),
    "re-admit 1/8": (0.125, 0.0),
    "draw 1/4 among the starved": (0.0, 0.25),
    "both": (0.125, 0.25),
}
"""Name -> share of groups re-admitted, share of draws given to starved tasks (the longest unseen task first)."""


def one_run(filter: Ranking, rate: float, drawn: float, rng: random.Random) -> Row:
    """A toy run with one probability per task. Training on a group moves its task's log-odds by GRPO's gradient."""
    odds = [math.log(p / (1 - p)) for p in (min(max(rng.betavariate(0.5, 0.5), 1e-3), 1 - 1e-3) for _ in range(POOL))]
    skips, trained, passed, seen = [0] * POOL, [0] * POOL, [0] * POOL, [-1] * POOL
    constant = longest = 0
    for step in range(STEPS):
        waiting = sorted((task for task in range(POOL) if skips[task] >= PATIENCE), key=lambda task: seen[task])
        first = waiting[: round(drawn * GROUPS)]
        tasks = first + rng.sample([task for task in range(POOL) if task not in first], GROUPS - len(first))
        values_PG = [play(1 / (1 + math.exp(-odds[task])), SIZE, rng) for task in tasks]
        spreads = [sample_variance(values) for values in values_PG]
        constant += sum(spread == 0 for spread in spreads)
        verdicts = readmit(
            filter.rank(spreads), [f"{task:03}" for task in tasks], [skips[task] for task in tasks],
            [spread > 0 for spread in spreads], PATIENCE, math.ceil(rate * GROUPS),
        )  # fmt: skip
        kept = sum(verdict.kept for verdict in verdicts)
        for task, spread, verdict in zip(tasks, spreads, verdicts, strict=True):
            skips[task] = 0 if verdict.kept else skips[task] + 1
            passed[task] = 0 if verdict.kept else passed[task] + (spread > 0)
            longest = max(longest, passed[task])
            seen[task] = step
            trained[task] += verdict.kept
            if verdict.kept:
                odds[task] += RATE * math.sqrt(spread) / kept
    success = [1 / (1 + math.exp(-each)) for each in odds]
    return {
        "never": sum(not each for each in trained) / POOL,
        "longest": longest,
        "constant": constant / (STEPS * GROUPS),
        "success": fmean(success),
        "worst_quarter": fmean(sorted(success)[: POOL // 4]),
    }


def coverage(runs: int) -> Iterator[Row]:
    for filter in (TopP(p=0.9), TopP(p=0.5), TopK(k=4)):
        for name, (rate, drawn) in GUARDS.items():
            found = [one_run(filter, rate, drawn, random.Random(f"coverage {run}")) for run in range(runs)]
            yield {
                "part": "coverage", "filter": str(filter).replace(", on='outcome'", ""), "guard": name, "runs": runs,
                **{measure: spread_of([run[measure] for run in found]) for measure in found[0]},
            }  # fmt: skip


# Refills --------------------------------------------------------------------------------------------------------------


def whole(needed: int, varying: int, collected: int, most: int) -> int:
    return most


def expected_need(needed: int, varying: int, collected: int, most: int) -> int:
    return refill_size(needed, varying, collected, most, margin=0.0)


SIZES: Mapping[str, Callable[[int, int, int, int], int]] = {
    "whole batches": whole,
    "expected need": expected_need,
    "one deviation to spare": refill_size,
}


def refills(steps: int) -> Iterator[Row]:
    for share in (0.3, 0.5, 0.7, 0.9):
        for name, size in SIZES.items():
            found = []
            for step in range(steps):
                rng = random.Random(f"refills {share} {step}")
                varying, collected, draws = sum(rng.random() < share for _ in range(GROUPS)), GROUPS, 1
                while varying < GROUPS and draws < 3:
                    further = size(GROUPS - varying, varying, collected, GROUPS)
                    varying += sum(rng.random() < share for _ in range(further))
                    collected, draws = collected + further, draws + 1
                found.append((collected, draws, float(varying >= GROUPS)))
            columns = dict(zip(("groups", "draws", "enough"), zip(*found, strict=True), strict=True))
            yield {
                "part": "refills", "share": share, "size": name, "steps": steps,
                **{measure: spread_of(values) for measure, values in columns.items()},
            }  # fmt: skip


# The page -------------------------------------------------------------------------------------------------------------


def cell(value: tuple[float, float], digits: int = 2) -> str:
    return f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ranks_table(rows: Sequence[Row], measure: str, settings: Sequence[tuple[str, int, float, float]]) -> str:
    def find(estimate: str, setting: tuple[str, int, float, float]) -> Row:
        keys = ("chances", "size", "drift", "missing")
        return next(
            row
            for row in rows
            if row["part"] == "ranks"
            and row["measure"] == measure
            and row["estimate"] == estimate
            and tuple(row[key] for key in keys) == setting
        )

    body = []
    for name in ESTIMATES:
        found = [find(name, setting) for setting in settings]
        if name == "sample variance":
            body.append([name, *(cell((row["mean"], row["half"])) for row in found)])
        else:
            body.append([name, *(f"{row['gain']:+.2f} ± {row['gain_half']:.2f}" for row in found)])
    return table(["", *(setting_name(*setting) for setting in settings)], body)


def setting_name(chances: str, size: int, step: float, missing: float) -> str:
    return f"{chances}, {size}" + (f", drift {step:g}" if step != 0.3 else "") + (", a quarter lost" if missing else "")


def page(rows: Sequence[Row]) -> str:
    sizes = [(chances, size, 0.3, 0.0) for chances in CHANCES for size in (4, 8, 16)]
    others = [("u-shaped", 8, 0.0, 0.0), ("u-shaped", 8, 1.0, 0.0), ("u-shaped", 8, 0.3, 0.25)]
    batches = max(row["batches"] for row in rows if row["part"] == "ranks")
    runs = next(row["runs"] for row in rows if row["part"] == "coverage")
    steps = next(row["steps"] for row in rows if row["part"] == "refills")
    covered = [
        [
            row["filter"], row["guard"], cell(row["never"], 3), cell(row["longest"], 1), cell(row["constant"], 3),
            cell(row["success"], 3), cell(row["worst_quarter"], 3),
        ]
        for row in rows if row["part"] == "coverage"
    ]  # fmt: skip
    refilled = [
        [f"{row['share']:g}", row["size"], cell(row["groups"], 1), cell(row["draws"]), cell(row["enough"], 3)]
        for row in rows
        if row["part"] == "refills"
    ]
    return f"""# Choosing tasks by few episodes

Written by `benchmarks/choosing.py`. Do not edit. These are simulations with known truth: a task is its probability p of
success, and no model is involved. ± is half of a 95% interval.

## Does a better variance give a better ranking?

Each batch has {GROUPS} groups. Their probabilities are drawn from Beta(.5, .5) (`u-shaped`), uniformly (`flat`) or from
Beta(.5, 2) (`hard`). The number in a column's name is the group size. Before the batch each task was visited up to
{MOST_VISITS} times. Between two visits its log-odds drifted by a normal step of .3, unless the column's name says
otherwise.

The first row of each table is the sample variance. The other rows are differences from it, batch by batch, over up to
{batches} batches (those with at least three groups that vary). "Shrunken" without visits uses the batch only.
"n visits" adds n earlier visits under Jeffreys' prior.

Kendall's tau between the estimate and p (1 - p), over the groups that vary (1 = the same order, 0 = no relation):

{ranks_table(rows, "tau", sizes)}

The next table compares what `top_k` with k = 4 keeps under the estimate and under p (1 - p). The overlap is the number
of groups kept by both, divided by the number kept by either:

{ranks_table(rows, "top_k", sizes)}

The same for `top_p` with p = .9:

{ranks_table(rows, "top_p", sizes)}

Three more cases: a policy that does not drift, a policy that drifts fast, and groups that lost a quarter of their
members. The first table is tau, the second the overlap of `top_k`:

{ranks_table(rows, "tau", others)}

{ranks_table(rows, "top_k", others)}

## What does a guard against starved tasks do?

There are {runs} toy runs of {STEPS} steps, with a pool of {POOL} tasks and {GROUPS} groups of {SIZE} per step. The
probabilities are drawn from Beta(.5, .5). Training on a group moves its task's own log-odds by GRPO's gradient. Tasks
share nothing. A task is starved after {PATIENCE} visits without training. The columns:

- `never`: share of the pool never trained on.
- `passed over`: the longest series of dropped groups of one task that varied, with none trained on in between.
- `constant`: share of all groups played that were constant, and so wasted.
- `success`, `worst quarter`: success at the end, over all tasks and over the worst quarter.

{table(["filter", "guard", "never", "passed over", "constant", "success", "worst quarter"], covered)}

## What does the size of refills save?

There are {steps} steps of {GROUPS} groups, with at most 3 draws, for four shares of groups that vary. `groups` is the
total number collected. `enough` is the share of steps that ended with {GROUPS} varying groups.

{table(["share that varies", "refill", "groups", "draws", "enough"], refilled)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a tenth of the cases, printed and not written")
    quick = parser.parse_args().quick
    part = 10 if quick else 1
    rows = [*ranks(500 // part), *coverage(60 // part), *refills(4000 // part)]
    if quick:
        print(page(rows))
        return
    (HERE / "results" / "choosing.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows), encoding="utf-8")
    print(f"Wrote {PAGE}.")


if __name__ == "__main__":
    main()
