"""What several seeds of one configuration say together: the mean gain, and how sure of it one can be.

Promise: pure functions on plain numbers; the two intervals answer two questions and are never mixed. *Over seeds*:
would another seed gain as much on these tasks? *Over tasks*: would these trained policies gain as much on other tasks?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from heedful.statistics.group_statistics import is_constant
from heedful.statistics.intervals import mean_interval
from heedful.types import Group, Metric


@dataclass(frozen=True, slots=True)
class PooledGain:
    """The mean gain of several seeds."""

    over_seeds: Metric
    """Mean of the seeds' mean gains, Student's interval with seeds - 1 degrees of freedom; `n` seeds."""
    over_tasks: Metric
    """Mean of the tasks' gains, each averaged over the seeds, with Student's interval over tasks; `n` tasks."""
    lowest: float | None
    """Mean gain of the seed that gained least."""
    highest: float | None
    """Mean gain of the seed that gained most."""


def task_rates(groups: Sequence[Group]) -> dict[str, float]:
    """Success rate of each task over its scored episodes; tasks without one are left out."""
    rates = {}
    for group in groups:
        successes = [float(t.success) for t in group.trajectories if t.success is not None]
        if successes:
            rates[group.task.id] = fmean(successes)
    return rates


def task_gains(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """After minus before, for the tasks that were scored both times."""
    return {task: rate - before[task] for task, rate in after.items() if task in before}


def pool(name: str, gains: Sequence[Mapping[str, float]]) -> PooledGain:
    """Pool gains by task, one mapping per seed. Seeds without any task are left out of all figures.

    The mean over tasks runs over the tasks that every pooled seed has, so it can differ from the mean over seeds
    where an episode broke.
    """
    pooled = [by_task for by_task in gains if by_task]
    means = [fmean(by_task.values()) for by_task in pooled]
    if not pooled:
        missing = Metric(name, None, 0, why="no seed was evaluated both before and after training")
        return PooledGain(missing, missing, None, None)
    shared = [task for task in pooled[0] if all(task in by_task for by_task in pooled)]
    by_task = [fmean(gains_of_seed[task] for gains_of_seed in pooled) for task in shared]
    return PooledGain(
        _mean(name, means, "a single seed has no interval"),
        _mean(name, by_task, "a single task has no interval" if by_task else "the seeds share no task"),
        min(means),
        max(means),
    )


def _mean(name: str, values: Sequence[float], why: str) -> Metric:
    interval = mean_interval(values)
    if interval is not None and is_constant(values):
        # Student's interval would have no width: certainty out of two seeds that happen to agree.
        return Metric(name, fmean(values), len(values), why="all gains are equal: no spread to take an interval from")
    if interval is None:
        return Metric(name, fmean(values) if values else None, len(values), why=why)
    return Metric(name, fmean(values), len(values), interval.low, interval.high)
