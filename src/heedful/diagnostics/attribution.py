"""The change of readings in one update, split by the parts of the update: `attribution/<reading>/...`.

Values come in blocks of prompts that share nothing, so the blocks are independent. Intervals are Student's over blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

from heedful.diagnostics.statistics.group_statistics import is_constant
from heedful.diagnostics.statistics.intervals import effective_clusters, mean_interval
from heedful.types import Metric

Name = Literal["gap", "mi", "thought_entropy", "success", "right_by_thought", "greedy_success"]
"""The readings."""
USUAL: tuple[Name, ...] = ("gap", "mi", "thought_entropy", "success")
"""Those that are read by default."""
GREEDY = "greedy_success"
"""The reading without parts. A greedy outcome stays as it is under small steps, and then it jumps: its slope is 0."""
BEFORE, TOTAL, MEASURED, EXPLAINED = "before", "total", "measured", "explained"


@dataclass(frozen=True, slots=True)
class Moved:
    """An episode of the batch, and what its tokens added to the change of a reading in this step."""

    reading: str
    group: int
    member: int
    total: float
    of_terms: Mapping[str, float]
    tokens: tuple[tuple[int, float], ...]
    """The tokens that moved most: id and addition, the largest first."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """One update as fresh thoughts see it, reading by reading, one number per block."""

    before: Mapping[str, Sequence[float]]
    """The reading before the update."""
    parts: Mapping[str, Mapping[str, Sequence[float]]]
    """Reading -> part of the update -> what it adds to the reading, to first order. `GREEDY` has none."""
    measured: Mapping[str, Sequence[float]]
    """The change of the reading, from the probabilities before and after."""
    thoughts: int
    moved: tuple[Moved, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    """Reading -> why it could not be read."""
    why: str = ""
    """Why there is nothing, if there is nothing."""


def attribution_metrics(found: Attribution) -> list[Metric]:
    """The reading before the update, each part, their sum, the measured change, and the sum as a part of it.

    `explained` has a value where the interval of the measured change leaves 0.
    """
    metrics = []
    for reading, why in found.missing.items():
        kinds = (BEFORE, MEASURED) if reading == GREEDY else (BEFORE, TOTAL, MEASURED, EXPLAINED)
        metrics += [Metric(f"attribution/{reading}/{kind}", None, why=why) for kind in kinds]
    for reading in found.before:
        prefix, parts = f"attribution/{reading}", found.parts.get(reading, {})
        metrics += [_mean(f"{prefix}/{part}", values, found.thoughts) for part, values in parts.items()]
        measured = _mean(f"{prefix}/{MEASURED}", found.measured[reading], found.thoughts)
        before = _mean(f"{prefix}/{BEFORE}", found.before[reading], found.thoughts)
        if reading == GREEDY:
            metrics += [before, measured]
            continue
        sums = [sum(each) for each in zip(*parts.values(), strict=True)]
        total = _mean(f"{prefix}/{TOTAL}", sums, found.thoughts)
        explained = Metric(f"{prefix}/{EXPLAINED}", None, measured.n, why="the measured change is not clear of 0")
        if is_clear(measured) and total.number is not None and measured.number is not None:
            explained = Metric(explained.name, total.number / measured.number, measured.n)
        metrics += [before, total, measured, explained]
    return metrics


def with_greedy(found: Attribution, before: Sequence[float], after: Sequence[float], blocks: int) -> Attribution:
    """The same with `GREEDY`. `before`, `after`: the greedy outcome of each fresh task, at both ends of the update."""
    if found.why:
        return replace(found, missing={**found.missing, GREEDY: found.why})
    size = len(before) // blocks
    means, later = (
        [fmean(each[place * size : (place + 1) * size]) for place in range(blocks)] for each in (before, after)
    )
    changes = [new - old for old, new in zip(means, later, strict=True)]
    return replace(found, before={**found.before, GREEDY: means}, measured={**found.measured, GREEDY: changes})


def is_clear(metric: Metric) -> bool:
    """Whether its interval leaves 0."""
    return metric.low is not None and metric.high is not None and (metric.low > 0 or metric.high < 0)


def _mean(name: str, values: Sequence[float], n: int) -> Metric:
    interval = mean_interval(values)
    if interval is None:
        return Metric(name, fmean(values), n, why="no interval: one block")
    if is_constant(values):
        return Metric(name, fmean(values), n, why="no interval: all blocks agree")
    return Metric(name, fmean(values), n, *interval, clusters=effective_clusters(values))
