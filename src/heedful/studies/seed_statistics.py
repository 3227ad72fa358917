"""What several seeds gain on each evaluated task, pooled over the tasks.

The interval over tasks answers: would these trained policies gain as much on other tasks? It says nothing about other
seeds; `studies.paired.mean_over` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from heedful.diagnostics.statistics.group_statistics import is_constant
from heedful.diagnostics.statistics.intervals import effective_clusters, mean_interval
from heedful.types import Group, Metric


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


def over_tasks(name: str, gains: Sequence[Mapping[str, float]]) -> Metric:
    """The mean of the tasks' gains, each averaged over the seeds, with Student's interval over tasks.

    `gains` holds one mapping of task to gain per seed; a seed without any task is left out. Only the tasks that every
    other seed has are pooled, so the mean can differ from the mean over seeds where an episode broke.
    """
    pooled = [by_task for by_task in gains if by_task]
    if not pooled:
        return Metric(name, None, 0, why="no task was evaluated twice, or its rollouts are not kept")
    shared = [task for task in pooled[0] if all(task in by_task for by_task in pooled)]
    values = [fmean(by_task[task] for by_task in pooled) for task in shared]
    interval = mean_interval(values)
    if interval is not None and is_constant(values):
        # Student's interval would have no width: certainty out of tasks that happen to agree.
        return Metric(name, fmean(values), len(values), why="all gains are equal: no spread to take an interval from")
    if interval is None:
        why = "a single task has no interval" if values else "the seeds share no task"
        return Metric(name, fmean(values) if values else None, len(values), why=why)
    return Metric(name, fmean(values), len(values), *interval, clusters=effective_clusters(values))
