"""Simulated runs in which nothing happens: constant levels under the noise of real readings.

Promise: what a detector raises on these series is a false alarm by construction. Equal seeds give equal series.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from scipy.special import ndtri

from heedful.diagnostics.statistics.intervals import LEVEL
from heedful.types import Metric

MetricSteps = Sequence[tuple[int, Mapping[str, Metric]]]
"""A run as (step, metrics by name), by ascending step: what alarms are replayed on."""

_Z = float(ndtri((1 + LEVEL) / 2))


@dataclass(frozen=True, slots=True)
class Level:
    """What one metric does while nothing happens."""

    name: str
    value: float
    error: float
    """Standard error of one reading."""
    bounded: bool
    """Real readings carry intervals, so simulated ones do as well."""
    n: int | None
    steps: tuple[int, ...]
    """The steps at which it is read."""
    low: float
    high: float
    """No simulated reading leaves the range that the name allows."""


def levels_of(run: MetricSteps, first_step: int = 0) -> list[Level]:
    """The level and the noise of every number in a real run, from its readings at `first_step` and later.

    The level is their mean. The error of one reading is the median half width of its intervals over 1.96; for metrics
    without intervals it is the median absolute difference of neighbouring readings over 0.954 (so that a drift of
    the real run does not count as noise; for normal noise that is the standard deviation). A metric with fewer than
    two readings is left out.
    """
    found: dict[str, list[tuple[int, Metric, float]]] = {}
    for step, metrics in run:
        for name, metric in metrics.items():
            if step >= first_step and metric.number is not None:
                found.setdefault(name, []).append((step, metric, metric.number))
    return [_level(name, points) for name, points in found.items() if len(points) >= 2]


def _level(name: str, points: Sequence[tuple[int, Metric, float]]) -> Level:
    values = [value for _, _, value in points]
    halves = [(m.high - m.low) / 2 for _, m, _ in points if m.low is not None and m.high is not None]
    bounded = 2 * len(halves) >= len(points)
    if bounded:
        error = median(halves) / _Z
    else:
        error = median(abs(later - earlier) for earlier, later in itertools.pairwise(values)) / 0.954
    share = max(values) <= 1 and min(values) >= 0 and any(word in name.rsplit("/", 1)[-1] for word in _SHARES)
    n = int(median([m.n for _, m, _ in points if m.n is not None] or [0])) or None
    steps, low = tuple(step for step, _, _ in points), 0.0 if min(values) >= 0 else -math.inf
    return Level(name, fmean(values), error, bounded, n, steps, low, 1.0 if share else math.inf)


_SHARES = ("success", "rate", "accuracy", "chance", "p_value", "ratio", "saturated", "influence", "solved", "mixed")
"""Words of names of shares."""


def drift_free(levels: Sequence[Level], seed: int, correlation: float = 0.5) -> list[tuple[int, dict[str, Metric]]]:
    """One run of constant levels whose noise carries over from reading to reading: AR(1), stationary from the start.

    Each metric x reads level + error e_t with e_t = c e_(t-1) + sqrt(1 - c^2) z_t, z standard normal and independent
    between metrics, c = `correlation`. Readings keep to the range of their metric; where the real ones have intervals
    the simulated ones get value +- 1.96 error.
    """
    rng, fresh = np.random.default_rng(seed), math.sqrt(1 - correlation**2)
    by_step: dict[int, dict[str, Metric]] = {}
    for level in levels:
        noise, half = 0.0, _Z * level.error
        for place, (step, shock) in enumerate(zip(level.steps, rng.standard_normal(len(level.steps)), strict=True)):
            noise = correlation * noise + fresh * float(shock) if place else float(shock)
            value = min(max(level.value + level.error * noise, level.low), level.high)
            within = (max(value - half, level.low), min(value + half, level.high)) if level.bounded else ()
            by_step.setdefault(step, {})[level.name] = Metric(level.name, value, level.n, *within)
    return sorted(by_step.items())
