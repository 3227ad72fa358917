"""The results of a study's finished runs: means over seeds, and paired differences over seeds and over tasks.

Promise: results are read from the run folders alone. A number that a run lacks is missing, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Protocol, Self, TypeVar

from heedful.boundary import to_json
from heedful.boundary.system_errors import sentence_of
from heedful.diagnostics.catalogue import unit_of
from heedful.report.drawing.panel import DrawnPanel
from heedful.report.record import RunRecord, Series, flatten, read_run
from heedful.run.edits import FREE
from heedful.run.evaluation.held_out import over_tasks, task_gains, task_rates
from heedful.storage import read_rollouts
from heedful.studies.declaration import Interaction, Measure, Pair, Pool, Study
from heedful.studies.jobs import TrainingJob
from heedful.studies.paired import (
    Count,
    PairedDifference,
    mean_over,
    paired_difference,
)
from heedful.studies.study_folder import StudyRun
from heedful.types import Metric

K = TypeVar("K")
V = TypeVar("V")

EVALUATED = re.compile(r"eval/(val|test)/(sampled|greedy)/success")


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that is over, and its measurements."""

    run: StudyRun
    record: RunRecord
    rates: Mapping[tuple[Measure, int], Mapping[str, float]]
    """Success on each task, by the measure and the place of the evaluation in time; empty without its rollouts."""


@dataclass(frozen=True, slots=True)
class ArmValue:
    """One measure of one arm, or of a pool of arms."""

    arm: str
    by_seed: Mapping[int, float]
    missing: Mapping[int, str]
    """Seed -> why it has no value."""
    readings: Mapping[int, Metric]
    """Seed -> its reading, with an interval where the run has one."""
    mean: Metric
    """Over the seeds that have one."""
    reached: Count | None
    """The number of runs in which it happened, for a measure that asks when something happens."""
    over_tasks: Metric | None
    """The mean over the evaluated tasks, each averaged over the seeds; only for a gain of evaluated success."""


@dataclass(frozen=True, slots=True)
class PairValue:
    """One measure of one pair, or of the interaction of two."""

    pair: Pair | Interaction
    over_seeds: PairedDifference
    over_tasks: Metric | None
    """Over the tasks that both evaluated, each averaged over the seeds; only for evaluated success of a pair."""


@dataclass(frozen=True, slots=True)
class MeasureOutcome:
    """One measure over all arms and pairs."""

    measure: Measure
    arms: tuple[ArmValue, ...]
    """The arms in their order, then the pools."""
    pairs: tuple[PairValue, ...]
    interactions: tuple[PairValue, ...]


Rows = list[list[str]]
"""A table; its first row is the header."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of results."""

    title: str
    """On the page."""
    lead: str
    """What a reader of the page has to know."""
    caption: str
    """In Markdown."""
    rows: Rows


@dataclass(frozen=True, slots=True)
class Reading:
    """What an outcome of a study (`declaration.Outcome`) read out of the runs, and how it is shown."""

    values: Any
    """A dataclass, written to `results.json`."""
    tables: tuple[Table, ...]
    sentences: tuple[str, ...]
    """For the verdict."""
    figures: tuple[DrawnPanel, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcomes:
    """All that a study reads out of its runs."""

    runs: tuple[FinishedRun, ...]
    measures: tuple[MeasureOutcome, ...]
    readings: tuple[Reading, ...] = ()
    """Of the study's own outcomes, in their order."""
    foreign: tuple[str, ...] = ()
    """Each run that trained with other settings than its arm declares, with a first setting that differs."""
    unread: tuple[str, ...] = ()
    """Each run that cannot be read and is left out, with the reason."""

    def of_arm(self, arm: str) -> list[FinishedRun]:
        return [each for each in self.runs if each.run.arm == arm]

    def records(self, arms: Sequence[str]) -> dict[str, RunRecord]:
        """Label of the run -> its measurements, arm by arm."""
        return {each.run.label: each.record for arm in arms for each in self.of_arm(arm)}


class Outcome(Protocol):
    """What a study reads out of its runs beyond measures. Outcomes are frozen dataclasses, named as `module:Class`."""

    @property
    def title(self) -> str: ...

    @property
    def arms_read(self) -> tuple[str, ...]:
        """The names of the arms whose runs it reads."""
        ...

    def among(self, arms: Collection[str]) -> Self | None:
        """The same for a study of these arms alone; `None` where nothing is left to read."""
        ...

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        """The rows, figures and sentences of the runs that are over. `outcomes` holds runs and measures."""
        ...


def read_outcomes(study: Study, over: Sequence[StudyRun]) -> Outcomes:
    """Read the runs that are over. A run without measurements, or with a malformed file, is named and left out."""
    runs, unread = [], []
    for run in over:
        try:
            record = read_run(run.folder)
            runs.append(FinishedRun(run, record, dict(_rates(study, run, record))))
        except (OSError, ValueError) as error:
            unread.append(f"{run.label} ({sentence_of(error).rstrip('.')})")
    found = Outcomes(
        tuple(runs),
        tuple(_measure(study, measure, runs) for measure in study.measures),
        foreign=tuple(filter(None, (_foreign(study, each) for each in runs))),
        unread=tuple(unread),
    )
    return replace(found, readings=tuple(each.read(study, found) for each in study.outcomes))


def _foreign(study: Study, each: FinishedRun) -> str:
    """The run and a setting that is not as its arm declares, as of a run that was copied here; empty without one.

    Settings that either side lacks are those of another version.
    """
    job, found = study.arm(each.run.arm).job, each.record.config
    if not isinstance(job, TrainingJob):
        return ""
    declared = flatten(to_json(job.seeded(each.run.seed)))
    of_model = ("tags.",) if declared["tags.of_model"] == "true" else ()  # a run writes the tags of its model
    for name, value in declared.items():
        free = name in (*FREE, "task_seeds", "choose.run") or name.startswith(("diagnostics.alarms", *of_model))
        if not free and found.get(name, value) != value:
            return f"{each.run.label} ({name} is {found[name]:.80}, declared {value:.80})"
    return ""


def total_until(measure: Measure, spent: Series, success: Series) -> Metric:
    """The sum of `spent` up to the step at which the mean of `success` over a window first reaches the level."""
    points = [point for point in success.numeric if _within(measure, point.step)]
    for end in range(measure.window, len(points) + 1):
        window = points[end - measure.window : end]
        if fmean(point.number or 0.0 for point in window) >= (measure.level or 0.0):
            taken = [point.number or 0.0 for point in spent.numeric if point.step <= window[-1].step]
            why = "" if taken else f"{measure.metric} was not recorded"
            return Metric(measure.metric, sum(taken) if taken else None, len(taken), why=why)
    return Metric(measure.metric, None, len(points), why=f"{measure.reaches} was never at least {measure.level:g}")


_OVER: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "highest": max, "lowest": min}


def reading_of(measure: Measure, series: Series) -> Metric:
    """The one number of a run that a measure asks for; `None` with the reason where there is none."""
    name, when, level = measure.metric, measure.when, measure.level or 0.0
    points = [point for point in series.points if _within(measure, point.step)]
    taken = [(point, point.number) for point in points if point.number is not None]
    values = [number for _, number in taken]
    if not taken:
        whys = dict.fromkeys(point.metric.why for point in points if point.metric.why)
        return Metric(name, None, 0, why="; ".join(whys) or f"{name} was not recorded")
    if when in ("last", "first"):
        return taken[-1 if when == "last" else 0][0].metric
    if when == "change" and len(values) < 2:
        return Metric(name, None, 1, why="a single reading has not changed")
    if when == "change":
        return Metric(name, values[-1] - values[0], 2)
    if when in _OVER:
        return Metric(name, _OVER[when](values), len(values))
    upwards = when == "first_at_least"
    step = next((point.step for point, value in taken if (value >= level if upwards else value <= level)), None)
    why = "" if step is not None else f"never {'at least' if upwards else 'at most'} {level:g}"
    return Metric(name, step, len(taken), why=why)


def _within(measure: Measure, step: int) -> bool:
    return step >= measure.from_step and (measure.to_step is None or step <= measure.to_step)


def _measure(study: Study, measure: Measure, runs: Sequence[FinishedRun]) -> MeasureOutcome:
    of_arm = {arm.name: [each for each in runs if each.run.arm == arm.name] for arm in study.arms}
    arms = tuple(_arm(measure, name, found, by_task=study.flat) for name, found in of_arm.items())
    arms += tuple(_pool(measure, pool, [arm for arm in arms if arm.arm in pool.arms]) for pool in study.pools)
    values = {arm.arm: arm.by_seed for arm in arms}
    members = {arm.name: (arm.name,) for arm in study.arms} | {pool.name: pool.arms for pool in study.pools}
    title = measure.title

    def difference(pair: Pair) -> PairedDifference:
        return paired_difference(title, values[pair.arm], values[pair.control])

    def of_two(each: Interaction) -> PairedDifference:
        return paired_difference(title, difference(each.pair).by_seed, difference(each.base).by_seed, "pair")

    def by_task(pair: Pair) -> Metric | None:
        return _over_tasks(measure, members[pair.arm], members[pair.control], runs)

    pairs = tuple(PairValue(pair, difference(pair), by_task(pair)) for pair in study.pairs)
    return MeasureOutcome(
        measure, arms, pairs, tuple(PairValue(each, of_two(each), None) for each in study.interactions)
    )


def _arm(measure: Measure, arm: str, runs: Sequence[FinishedRun], by_task: bool) -> ArmValue:
    """One measure of one arm; `by_task` pairs a gain of evaluated success by task, where the rollouts are kept."""
    readings = {
        each.run.seed: total_until(measure, series, each.record.get(measure.reaches))
        if measure.reaches
        else reading_of(measure, series)
        for each in runs
        for series in [each.record.get(measure.metric)]
    }
    pooled = None
    if by_task and measure.when == "change" and EVALUATED.fullmatch(measure.metric):
        gains = {
            each.run.seed: task_gains(each.rates[measure, 0], each.rates[measure, -1])
            for each in runs
            if readings[each.run.seed].value is not None
        }
        readings |= {seed: over_tasks(measure.metric, [found]) for seed, found in gains.items() if found}
        pooled = over_tasks(measure.metric, list(gains.values()))
    by_seed = {seed: metric.number for seed, metric in readings.items() if metric.number is not None}
    missing = {seed: metric.why or "no value" for seed, metric in readings.items() if seed not in by_seed}
    reached = Count(len(by_seed), len(readings)) if measure.level is not None else None
    return ArmValue(arm, by_seed, missing, readings, _mean(measure, by_seed, missing), reached, pooled)


def _pool(measure: Measure, pool: Pool, arms: Sequence[ArmValue]) -> ArmValue:
    """One measure of a pool: the mean over its arms, for each seed of which all arms have a value."""
    by_seed = {seed: fmean(values) for seed, values in shared([arm.by_seed for arm in arms]).items()}
    missing = {
        seed: "; ".join(f"{arm.arm}: {arm.missing.get(seed, 'not over')}" for arm in arms if seed not in arm.by_seed)
        for seed in sorted({seed for arm in arms for seed in arm.readings} - by_seed.keys())
    }
    readings = {seed: Metric(measure.metric, value, len(arms)) for seed, value in by_seed.items()}
    return ArmValue(pool.name, by_seed, missing, readings, _mean(measure, by_seed, missing), None, None)


def _mean(measure: Measure, by_seed: Mapping[int, float], missing: Mapping[int, str]) -> Metric:
    """The mean with the part of its interval that it can take. A change and the cost of a level have no range."""
    mean = mean_over(measure.metric, list(by_seed.values()), list(missing.values()))
    return mean if measure.when == "change" or measure.level is not None else within_range(mean)


def within_range(metric: Metric) -> Metric:
    """The part of an interval of a mean that a share can take; others as they are."""
    if unit_of(metric.name) != "share" or metric.low is None or metric.high is None:
        return metric
    return replace(metric, low=max(metric.low, 0.0), high=min(metric.high, 1.0))


def _over_tasks(
    measure: Measure, arms: Sequence[str], controls: Sequence[str], runs: Sequence[FinishedRun]
) -> Metric | None:
    """Arms minus controls on each evaluated task, where the measure is the last evaluation's success.

    Several arms count as the mean over them, on the tasks and the seeds that all have.
    """
    if not EVALUATED.fullmatch(measure.metric) or measure.when != "last":
        return None
    arm, control = (_pooled_rates(measure, names, runs) for names in (arms, controls))
    gains = [task_gains(control[seed], arm[seed]) for seed in sorted(arm.keys() & control.keys())]
    if not any(gains):
        return Metric(measure.metric, None, 0, why="no rollouts of the same evaluated tasks are kept in both arms")
    return over_tasks(measure.metric, gains)


def _pooled_rates(measure: Measure, arms: Sequence[str], runs: Sequence[FinishedRun]) -> dict[int, dict[str, float]]:
    """Seed -> task -> success at the last evaluation, averaged over the arms."""
    by_arm = [{each.run.seed: each.rates[measure, -1] for each in runs if each.run.arm == name} for name in arms]
    return {
        seed: {task: fmean(rates) for task, rates in shared(found).items()} for seed, found in shared(by_arm).items()
    }


def shared(mappings: Sequence[Mapping[K, V]]) -> dict[K, list[V]]:
    """The values of each key that all mappings have."""
    return {key: [each[key] for each in mappings] for key in mappings[0] if all(key in each for each in mappings)}


def _rates(study: Study, run: StudyRun, record: RunRecord) -> Iterator[tuple[tuple[Measure, int], dict[str, float]]]:
    """The rates by task that the measures of a study compare. Raises ValueError where rollouts cannot be read."""
    for measure in study.measures:
        found = EVALUATED.fullmatch(measure.metric)
        by_task = measure.when == "last" or (measure.when == "change" and study.flat)
        taken = [p for p in record.get(measure.metric).numeric if _within(measure, p.step)]
        if found is None or not by_task:
            continue
        for place in (0, -1) if measure.when == "change" else (-1,):
            path = run.folder.rollouts(taken[place].step, f"{found[1]}_{found[2]}") if taken else None
            yield (measure, place), task_rates(read_rollouts(path).groups) if path and path.exists() else {}
