"""Batches from populations whose values are known, and how often intervals hold these values.

A truth is worked out from the population: by construction, by enumeration, or by numerical integration of its
definition. It is never the mean of the readings that it judges.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from heedful.types import Metric

Floats = npt.NDArray[np.float64]
ROUNDING = 1e-9


class Later(Mapping[str, float]):
    """Truths that take seconds to work out: their names are known, and the values are found at the first look."""

    def __init__(self, names: Iterable[str], find: Callable[[], Mapping[str, float]]) -> None:
        self._names = dict.fromkeys(names)
        self._find = cache(find)

    def __getitem__(self, name: str) -> float:
        return self._find()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Case:
    """One population, and one size of batch."""

    name: str
    draw: Callable[[np.random.Generator], Iterable[Metric]]
    """One batch, read by the functions that a run calls."""
    truths: Mapping[str, float]
    """Name of a metric -> the value of the population. After `#` a name may say which of several truths it means."""
    batches: int = 1000
    """In a full simulation, at least 400."""
    small: int = 40
    """In the tests."""


@dataclass(frozen=True)
class Estimator:
    """One row of the table: metrics that are read with one formula, and the cases that it is judged in."""

    label: str
    covers: tuple[str, ...]
    """Patterns of the catalogue; empty for an interval that no metric carries."""
    read: tuple[str, ...]
    """The truths of the cases that judge this row."""
    known: str
    """The truth, and how it is known."""
    cases: tuple[Case, ...]

    def names(self, case: Case) -> list[str]:
        """The truths of this case that belong to this row."""
        return [name for name in self.read if name in case.truths]


@dataclass(frozen=True)
class Reading:
    """One truth against all batches of one case."""

    truth: float
    bias: float
    """Mean reading minus truth."""
    error: float
    """The standard error of this mean."""
    batches: int
    intervals: int
    """Batches that gave an interval."""
    held: int
    """Intervals that hold the truth."""

    @property
    def coverage(self) -> float:
        """The share of intervals that hold the truth; 1 where no batch gave one."""
        return self.held / self.intervals if self.intervals else 1.0

    def to_json(self) -> dict[str, Any]:
        figures = {"truth": self.truth, "bias": self.bias, "error": self.error}
        counts = {"batches": self.batches, "intervals": self.intervals, "held": self.held}
        return {name: float(f"{value:.6g}") for name, value in figures.items()} | counts


def simulate(case: Case, batches: int) -> dict[str, Reading]:
    """Truth -> its reading. Every case has a generator of its own, so cases can be added without changing others."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    found: dict[str, list[Metric]] = {name: [] for name in case.truths}
    for _ in range(batches):
        by_name = {metric.name: metric for metric in case.draw(rng)}
        for name, metrics in found.items():
            metrics.append(by_name[name.partition("#")[0]])
    return {name: judged(metrics, case.truths[name]) for name, metrics in found.items()}


def judged(metrics: Iterable[Metric], truth: float) -> Reading:
    """Bias, and the number of intervals that hold the truth."""
    metrics = list(metrics)
    values = [float(metric.value) for metric in metrics if isinstance(metric.value, int | float)]
    ends = [(metric.low, metric.high) for metric in metrics if metric.low is not None and metric.high is not None]
    slack = ROUNDING * max(1.0, abs(truth))
    held = sum(bool(low - slack <= truth <= high + slack) for low, high in ends)
    mean = float(np.mean(values)) if values else float("nan")
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return Reading(truth, mean - truth, error, len(metrics), len(ends), held)
