"""How well a metric separates two sets of values: ROC curves and the area under them.

Ties share credit by midranks, so a metric that never moves has an area of exactly one half. Runs are the independent
units, never values: an interval is for the area over all runs that could have been made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, stdtrit
from scipy.stats import rankdata

from heedful.diagnostics.catalogue import Trend
from heedful.diagnostics.statistics.intervals import LEVEL, Interval

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one metric in one set, and the run that each came from."""

    values: tuple[float, ...]
    runs: tuple[str, ...] = ()
    """One name per value; values of one run are correlated. Empty: each value is a run of its own."""

    def names(self, side: str) -> tuple[str, ...]:
        """The run of each value."""
        return self.runs or tuple(f"{side}{index}" for index in range(len(self.values)))


@dataclass(frozen=True, slots=True)
class Area:
    """The area under a ROC curve: the chance that a collapsed value looks more collapsed than a healthy one."""

    value: float
    interval: Interval | None
    why: str
    """How the interval was taken, or why there is none."""
    direction: Trend
    """On which side collapsed values are."""
    declared: bool
    """The direction was said beforehand; otherwise the data chose it, which flatters areas near one half."""
    collapsed: int
    """Values of this side."""
    healthy: int
    collapsed_runs: int
    healthy_runs: int


def area(collapsed: Sample, healthy: Sample, direction: Trend | None = None) -> Area:
    """The area under the ROC curve with its interval.

    The interval is Obuchowski's (1997) on the log-odds scale: the values of a run are one cluster. With one value per
    run it is DeLong's. The quantile is Student's t with one degree of freedom less than the smaller side has runs (a
    deviation: the normal quantile covers 84% with 6 runs). Sets that do not overlap have no spread. Their limit is
    the exact one for as many independent pairs as the smaller side has runs. A side of a single run has no interval.
    """
    x, y = np.asarray(collapsed.values, dtype=np.float64), np.asarray(healthy.values, dtype=np.float64)
    raw = float(_placements(x, y).mean())
    side: Trend = direction or ("higher" if raw >= 0.5 else "lower")
    if side == "lower":
        x, y = -x, -y
    value = raw if side == "higher" else 1.0 - raw
    names = collapsed.names("x"), healthy.names("y")
    interval, why = _interval(value, x, y, *names)
    return Area(
        value, interval, why, side, direction is not None, len(x), len(y), len(set(names[0])), len(set(names[1]))
    )


def roc_curve(collapsed: Sequence[float], healthy: Sequence[float], direction: Trend) -> list[tuple[float, float]]:
    """(false alarm rate, hit rate) at every threshold, from (0, 0) to (1, 1). Equal values move both at once."""
    sign = 1.0 if direction == "higher" else -1.0
    x, y = sign * np.asarray(collapsed, dtype=np.float64), sign * np.asarray(healthy, dtype=np.float64)
    thresholds = np.unique(np.concatenate([x, y]))[::-1]
    points = [(float(np.mean(y >= limit)), float(np.mean(x >= limit))) for limit in thresholds]
    return [(0.0, 0.0), *points]


def _placements(x: Array, y: Array) -> Array:
    """For each x the share of y below it, ties counted half: from midranks (Sun and Xu 2014)."""
    inside: Array = rankdata(x)
    together: Array = rankdata(np.concatenate([x, y]))[: len(x)]
    return (together - inside) / len(y)


def _interval(
    value: float, x: Array, y: Array, names_x: Sequence[str], names_y: Sequence[str]
) -> tuple[Interval | None, str]:
    runs = min(len(set(names_x)), len(set(names_y)))
    if runs < 2:
        return None, "a single run on one side"
    if value in (0.0, 1.0):
        edge = ((1 - LEVEL) / 2) ** (1 / runs)
        bounds = Interval(edge, 1.0) if value == 1.0 else Interval(0.0, 1 - edge)
        return bounds, f"no overlap: exact for {runs} runs"
    error = math.sqrt(_variance(value, x, y, names_x, names_y))
    if error == 0.0:
        return None, "no spread among the runs"
    half = float(stdtrit(runs - 1, (1 + LEVEL) / 2)) * error / (value * (1 - value))
    odds = float(logit(value))
    return Interval(float(expit(odds - half)), float(expit(odds + half))), f"by run, {runs} on the smaller side"


def _variance(value: float, x: Array, y: Array, names_x: Sequence[str], names_y: Sequence[str]) -> float:
    """Obuchowski's variance of the area. With one value per cluster it is DeLong's."""
    parts_x, parts_y = (
        _by_cluster(_placements(x, y) - value, names_x),
        _by_cluster(1 - _placements(y, x) - value, names_y),
    )
    variance = 0.0
    for parts, count in ((parts_x, len(x)), (parts_y, len(y))):
        clusters = len(parts)
        variance += clusters / (clusters - 1) * sum(part**2 for part in parts.values()) / count**2
    both = parts_x.keys() & parts_y.keys()
    if both:  # a run with values on both sides correlates them
        clusters = len(parts_x.keys() | parts_y.keys())
        cross = sum(parts_x[name] * parts_y[name] for name in both)
        variance += 2 * clusters / (clusters - 1) * cross / (len(x) * len(y))
    return max(variance, 0.0)


def _by_cluster(deviations: Array, names: Sequence[str]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, deviation in zip(names, deviations, strict=True):
        sums[name] = sums.get(name, 0.0) + float(deviation)
    return sums
