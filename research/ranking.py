"""The variance of rewards of each task of a pool, the parts that it cuts the pool into, and how far to trust it.

A pass plays every task of the pool once, as a group of G members. So one pass is what a filter sees in one step, and
passes are independent of each other.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from heedful.diagnostics.task_triage import room
from heedful.storage import write_whole
from heedful.types import Metric

Floats = npt.NDArray[np.float64]

RANKING = "ranking.json"
"""The file of a ranking in its run folder."""


@dataclass(frozen=True, slots=True)
class RankedTask:
    """One task of the pool, and what its episodes earned."""

    id: str
    seed: int
    values: tuple[tuple[float | None, ...], ...] = ()
    """For each pass the members' values of what the filter looks at; `None` = not scored."""
    variance: float | None = None
    """Sample variance of all values; `None` before the last pass, and for fewer than two values."""
    part: int | None = None
    """1 = the part with the smallest variances; `None` before the last pass, and for a task in no part."""


def ranked(tasks: Sequence[RankedTask], parts: int) -> list[RankedTask]:
    """The tasks with their variance over all passes, and their part."""
    variance_P = variances(values_of(tasks))
    part_P = parts_of(variance_P, [task.id for task in tasks], parts)
    return [
        replace(task, variance=None if math.isnan(variance) else float(variance), part=int(part) or None)
        for task, variance, part in zip(tasks, variance_P, part_P, strict=True)
    ]


def values_of(tasks: Sequence[RankedTask]) -> Floats:
    """`[P, passes, G]`, NaN where an episode was not scored."""
    return np.array([task.values for task in tasks], dtype=np.float64)


def variances(values_PKG: Floats) -> Floats:
    """Sample variance of each task over all passes and members, 1/(n - 1); NaN for fewer than two values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # tasks without values
        found: Floats = np.nanvar(values_PKG.reshape(len(values_PKG), -1), axis=1, ddof=1)
    return found


def parts_of(variance_P: Floats, names: Sequence[str], parts: int) -> npt.NDArray[np.int64]:
    """The part of each task, 1 = the smallest variances; 0 = none. All parts have the same size.

    Equal variances are ordered by a hash of the task's name, so that no order of play decides. Where the number of
    tasks is no multiple of `parts`, the tasks between two parts are in none, and so are tasks without a variance.
    """
    known = [place for place in range(len(names)) if not math.isnan(variance_P[place])]
    order = sorted(known, key=lambda place: (variance_P[place], hashlib.sha256(names[place].encode()).digest()))
    size, found = len(order) // parts, np.zeros(len(names), dtype=np.int64)
    for part in range(parts):
        start = round(part * (len(order) - size) / max(parts - 1, 1))
        found[order[start : start + size]] = part + 1
    return found


def ranking_metrics(tasks: Sequence[RankedTask], parts: int) -> list[Metric]:
    """How far the ranking repeats itself on separate episodes, and what each part is like on the other half.

    Passes 0, 2, ... are one half and passes 1, 3, ... the other. A part is chosen on one half and measured on the
    other, both ways, because a part measured on the episodes that chose it looks more extreme than it is.
    """
    values_PKG = values_of(tasks)
    names, passes = [task.id for task in tasks], values_PKG.shape[1]
    whole_P, means_P = variances(values_PKG), _means(values_PKG)
    found = [
        Metric("ranking/reward_variance", _mean(whole_P), len(tasks)),
        Metric("ranking/mean", _mean(means_P), len(tasks)),
        Metric("ranking/constant", _mean(np.where(np.isnan(whole_P), np.nan, whole_P == 0)), len(tasks)),
    ]
    if passes < 2:
        return found
    halves = values_PKG[:, 0::2], values_PKG[:, 1::2]
    half_P = [variances(half) for half in halves]
    # A name of its own in each half: tasks of equal variance would else agree by their names.
    chosen_P = [parts_of(half_P[half], [f"{half} {name}" for name in names], parts) for half in range(2)]
    agree = (chosen_P[0] == chosen_P[1])[(chosen_P[0] > 0) & (chosen_P[1] > 0)]
    others = [variances(np.delete(values_PKG, number, axis=1)) for number in range(passes)]
    each = [variances(values_PKG[:, number]) for number in range(passes)]
    found += [
        _correlation("ranking/half_spearman", [half_P[0]], [half_P[1]]),
        _correlation("ranking/group_spearman", each, others),
        Metric("ranking/same_part", _mean(agree.astype(np.float64)), len(agree)),
    ]
    if not np.isnan(values_PKG).any():
        gain = room([task.id for task in tasks], [half.tolist() for half in half_P])
        found.append(replace(gain, low=None, high=None))  # over seeds, a study gives the interval
    middle = (np.nanmin(values_PKG) + np.nanmax(values_PKG)) / 2
    for part in range(1, parts + 1):
        members = [np.flatnonzero(chosen == part) for chosen in chosen_P]
        for name, per_half in (
            ("reward_variance", half_P),
            ("mean", [_means(half) for half in halves]),
            ("hard", [np.where(np.isnan(_means(half)), np.nan, _means(half) < middle) for half in halves]),
        ):
            crossed = np.concatenate([per_half[1][members[0]], per_half[0][members[1]]])
            found.append(Metric(f"ranking/part_{part}/{name}", _mean(crossed), len(members[0])))
    return found


def _means(values_PKG: Floats) -> Floats:
    """Mean value of each task; NaN where none was scored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found: Floats = np.nanmean(values_PKG, axis=(1, 2))
    return found


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _correlation(name: str, one: Sequence[Floats], other: Sequence[Floats]) -> Metric:
    """Spearman's correlation over the tasks, mean over the pairs of readings."""
    known_P = ~np.isnan(np.stack([*one, *other])).any(axis=0)
    pairs = [(first[known_P], second[known_P]) for first, second in zip(one, other, strict=True)]
    count = int(known_P.sum())
    if count < 3 or any(np.ptp(side) == 0 for pair in pairs for side in pair):
        return Metric(name, None, count, why="fewer than three tasks, or all of them have one variance")
    return Metric(name, float(np.mean([spearmanr(first, second).statistic for first, second in pairs])), count)


def tasks_of_part(tasks: Sequence[RankedTask], part: int | None, rng: random.Random) -> list[RankedTask]:
    """The tasks of a part; `None`: as many as a part has, drawn from all tasks of the pool."""
    if part is None:
        return rng.sample(list(tasks), sum(task.part == 1 for task in tasks))
    return [task for task in tasks if task.part == part]


def write_ranking(path: Path, tasks: Sequence[RankedTask], facts: dict[str, Any]) -> None:
    """The tasks with their values, variances and parts, and the conditions they were played under."""
    rows = [
        {"task": t.id, "seed": t.seed, "variance": t.variance, "part": t.part, "values": [list(v) for v in t.values]}
        for t in tasks
    ]
    write_whole(path, json.dumps({**facts, "tasks": rows}) + "\n")


def read_ranking(path: Path) -> list[RankedTask]:
    """The tasks of a ranking."""
    return [
        RankedTask(row["task"], row["seed"], tuple(map(tuple, row["values"])), row["variance"], row["part"])
        for row in json.loads(path.read_text())["tasks"]
    ]
