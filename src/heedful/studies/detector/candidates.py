"""Runs in which the thoughts lost the input while the replies stayed valid, and how often that happens at most.

Promise: the rule is declared before the runs. A run that could not be judged is not counted as healthy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from heedful.report.record import Point, RunRecord
from heedful.studies.declaration import Hunt
from heedful.studies.paired import Count


@dataclass(frozen=True, slots=True)
class LargestFall:
    """One metric of one run: its start, and the readings that lie lowest while replies are valid."""

    metric: str
    start: float
    lowest: float
    step: int
    """The last step of these readings."""
    valid: float
    """The share of valid replies at these readings."""

    @property
    def lost(self) -> float:
        """The part of the start that is gone."""
        return 1 - self.lowest / self.start


@dataclass(frozen=True, slots=True)
class HuntedRun:
    """One run."""

    run: str
    arm: str
    fall: LargestFall | None
    """The largest over the metrics; `None`: no metric could be judged."""
    candidate: bool


@dataclass(frozen=True, slots=True)
class HuntOutcome:
    """All runs of a hunt."""

    spec: Hunt
    runs: tuple[HuntedRun, ...]

    @property
    def count(self) -> Count:
        """Candidates among the runs that could be judged."""
        return Count(sum(run.candidate for run in self.runs), sum(run.fall is not None for run in self.runs))

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms with a candidate."""
        return tuple(dict.fromkeys(run.arm for run in self.runs if run.candidate))


def read_hunt(spec: Hunt, records: Mapping[str, Mapping[str, RunRecord]]) -> HuntOutcome:
    """The largest fall of every run. `records`: arm -> run -> measurements."""
    runs = []
    for arm, of_arm in records.items():
        for label, record in of_arm.items():
            falls = [fall for metric in spec.metrics if (fall := _largest_fall(spec, metric, record))]
            fall = max(falls, key=lambda each: each.lost, default=None)
            runs.append(HuntedRun(label, arm, fall, fall is not None and fall.lost >= spec.fall))
    return HuntOutcome(spec, tuple(runs))


def _largest_fall(spec: Hunt, metric: str, record: RunRecord) -> LargestFall | None:
    """`None` with too few readings, and where the start is not above zero: nothing can be lost there."""
    points = record.get(metric).numeric
    valid = {point.step: point.number or 0.0 for point in record.get(spec.valid).numeric}
    if len(points) < 2 * spec.window:
        return None
    start = _mean(points[: spec.window])
    if start <= 0:
        return None
    falls = []
    for end in range(2 * spec.window, len(points) + 1):
        window = points[end - spec.window : end]
        known = [valid[point.step] for point in window if point.step in valid]
        if known and fmean(known) >= spec.least_valid:
            falls.append(LargestFall(metric, start, _mean(window), window[-1].step, fmean(known)))
    return max(falls, key=lambda each: each.lost, default=None)


def _mean(points: Sequence[Point]) -> float:
    return fmean(point.number or 0.0 for point in points)
