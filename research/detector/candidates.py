"""Runs in which the thoughts lost the input while the replies stayed valid, and how often that happens at most.

Promise: the rule is declared before the runs. A run that could not be judged is not counted as healthy, and repeats of
candidates are never counted with the runs that chose them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from heedful.report.drawing.numerals import numeral
from heedful.report.record import Point, RunRecord
from heedful.studies.declaration import Study
from heedful.studies.outcomes import Outcomes, Reading, Rows, Table
from heedful.studies.paired import Count

_NORMAL = 1.96
"""Half of the width of a 95% interval in standard errors."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """Which runs lose what their reasoning says of the input, while their replies stay valid."""

    title: str
    metrics: tuple[str, ...]
    """A run is a candidate if any of these falls."""
    fall: float = 1 / 3
    """The part of its start that a metric has to lose."""
    errors: float = 2.0
    """Standard errors that it has to lose at least, from the intervals of its readings."""
    valid: str = "format/valid_rate"
    least_valid: float = 0.9
    """Replies are valid where this metric, averaged over the same steps, is at least so high."""
    window: int = 2
    """Readings that are averaged: the first ones are the start, and the lowest later ones decide."""
    fresh_seeds: tuple[int, ...] = ()
    """Seeds with which a candidate is to be repeated."""

    @property
    def arms_read(self) -> tuple[str, ...]:
        return ()

    def among(self, arms: Collection[str]) -> Hunt:
        """A hunt reads all arms that there are."""
        return self

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        """The table of all runs, and the candidates in sentences."""
        found = read_hunt(
            self,
            {arm.name: outcomes.records([arm.name]) for arm in study.arms},
            {each.run.label: each.run.seed for each in outcomes.runs},
        )
        lead = (
            "The start is the mean of the first readings, and the lowest is that of later neighbours. A run is a "
            "candidate if it has lost the declared part, and more than noise, while its replies were valid."
        )
        table = Table(self.title, lead, f"{self.title}: each run.", _hunt_rows(found))
        return Reading(found, (table,), tuple(_hunted(study, found)))


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
    error: float
    """The standard error of start minus lowest, from the intervals of the readings; 0 where they have none."""

    @property
    def lost(self) -> float:
        """The part of the start that is gone."""
        return 1 - self.lowest / self.start


@dataclass(frozen=True, slots=True)
class HuntedRun:
    """One run."""

    run: str
    arm: str
    seed: int
    fall: LargestFall | None
    """The largest over the metrics; `None`: no metric could be judged."""
    candidate: bool


@dataclass(frozen=True, slots=True)
class HuntOutcome:
    """All runs of a hunt."""

    spec: Hunt
    runs: tuple[HuntedRun, ...]

    @property
    def first(self) -> tuple[HuntedRun, ...]:
        """The runs that look for candidates."""
        return tuple(run for run in self.runs if run.seed not in self.spec.fresh_seeds)

    @property
    def repeats(self) -> tuple[HuntedRun, ...]:
        """The runs on fresh seeds."""
        return tuple(run for run in self.runs if run.seed in self.spec.fresh_seeds)

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms with a candidate among the first runs."""
        return tuple(dict.fromkeys(run.arm for run in self.first if run.candidate))


def counted(runs: Sequence[HuntedRun]) -> Count:
    """Candidates among the runs that could be judged."""
    return Count(sum(run.candidate for run in runs), sum(run.fall is not None for run in runs))


def read_hunt(spec: Hunt, records: Mapping[str, Mapping[str, RunRecord]], seeds: Mapping[str, int]) -> HuntOutcome:
    """The fall of every run. `records`: arm -> run -> measurements. `seeds`: run -> its seed."""
    runs = []
    for arm, of_arm in records.items():
        for label, record in of_arm.items():
            falls = [fall for metric in spec.metrics for fall in _falls(spec, metric, record)]
            # A fall that makes the run a candidate comes before a larger one that may be noise.
            fall = max(falls, key=lambda each: (_decides(spec, each), each.lost), default=None)
            runs.append(HuntedRun(label, arm, seeds[label], fall, fall is not None and _decides(spec, fall)))
    return HuntOutcome(spec, tuple(runs))


def _decides(spec: Hunt, fall: LargestFall) -> bool:
    return fall.lost >= spec.fall and fall.start - fall.lowest > spec.errors * fall.error


def _falls(spec: Hunt, metric: str, record: RunRecord) -> Iterator[LargestFall]:
    """The later readings while replies are valid. None where the start is not above zero: nothing can be lost there."""
    points = record.get(metric).numeric
    valid = {point.step: point.number or 0.0 for point in record.get(spec.valid).numeric}
    first = points[: spec.window]
    start = _mean(first) if len(points) >= 2 * spec.window else 0.0
    for end in range(2 * spec.window, len(points) + 1 if start > 0 else 0):
        window = points[end - spec.window : end]
        known = [valid[point.step] for point in window if point.step in valid]
        if known and fmean(known) >= spec.least_valid:
            error = math.hypot(_error(first), _error(window))
            yield LargestFall(metric, start, _mean(window), window[-1].step, fmean(known), error)


def _mean(points: Sequence[Point]) -> float:
    return fmean(point.number or 0.0 for point in points)


def _error(points: Sequence[Point]) -> float:
    """The standard error of their mean."""
    bounds = [(point.metric.low, point.metric.high) for point in points]
    halves = [(high - low) / 2 for low, high in bounds if low is not None and high is not None]
    return math.hypot(*halves) / _NORMAL / len(points)


def _hunt_rows(outcome: HuntOutcome) -> Rows:
    """Every run, those that lost most first."""
    rows = [["run", "metric", "start", "lowest, replies valid", "lost", "at step", "valid replies", "candidate"]]
    for run in sorted(outcome.runs, key=lambda each: -each.fall.lost if each.fall else 1.0):
        fall = run.fall
        cells = ["–"] * 6
        if fall is not None:
            figures = numeral(fall.start), numeral(fall.lowest), f"{fall.lost:.0%}", str(fall.step)
            cells = [fall.metric, *figures, f"{fall.valid:.0%}"]
        rows.append([run.run, *cells, "yes" if run.candidate else "no" if fall else "not judged"])
    return rows


def _hunted(study: Study, outcome: HuntOutcome) -> list[str]:
    """The candidates and how to repeat them, without any how often there is one at most; repeats by themselves."""
    spec, count, repeats = outcome.spec, counted(outcome.first), counted(outcome.repeats)
    rule = f"lost {spec.fall:.0%} of {' or '.join(spec.metrics)} while {spec.least_valid:.0%} of the replies were valid"
    sentences = []
    if count.of:
        sentences.append(f"{spec.title}: {count} runs {rule}. The limits are Clopper and Pearson's.")
    elif outcome.first:
        sentences.append(f"{spec.title}: unknown, no run could be judged.")
    unjudged = len(outcome.first) - count.of
    if unjudged and count.of:
        said = "run is in no count: it has" if unjudged == 1 else "runs are in no count: they have"
        sentences.append(f"{unjudged} further {said} too few readings with valid replies, or no start above zero.")
    if count.of and not outcome.arms and count.limits is not None:
        sentences.append(f"No candidate: in runs like these there is one in at most {count.limits.high:.1%}.")
    elif outcome.arms and not outcome.repeats and spec.fresh_seeds:
        seeds = ",".join(map(str, spec.fresh_seeds))
        again = f"python -m research {study.name} --arms {','.join(outcome.arms)} --seeds {seeds}"
        sentences.append(f"Repeat the candidates on fresh seeds with: {again}")
    if repeats.of:
        sentences.append(f"{spec.title}, repeats on fresh seeds alone: {repeats} runs {rule}.")
    return sentences
