"""Why prompts teach nothing, prompt by prompt: solved, unpaid or failed, and what to do about each.

A prompt that was seen once has no history. A prompt whose environment reports no progress is hardly ever called
unpaid, because it cannot be distinguished from a failed one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from heedful.diagnostics.signal import cause_of
from heedful.diagnostics.statistics.beliefs import Belief
from heedful.diagnostics.statistics.group_statistics import sample_variance, scored, values_on
from heedful.diagnostics.statistics.intervals import jackknife_interval
from heedful.types import Group, Metric

CAUSES = ("mixed", "solved", "unpaid", "failed")
"""Only `mixed` groups teach. Defined by `signal.cause_metrics`."""

ADVICE = {
    "solved": "Drop these tasks or make them harder: they cost episodes, and only regularisers act on them.",
    "unpaid": "Correct the reward, and do not train on these tasks before: members got all the way and earned nothing.",
    "failed": "Nothing to imitate: easier tasks first (a curriculum), the task in smaller parts, a reward for the "
    "process, or demonstrations.",
}
UNTOLD = "The environment reports no progress: failed groups may be unpaid ones."

REMEMBERS = 0.8
"""Weight of a task's visit relative to the next one, in the belief that names what the task is now."""

PARTS = 8
"""`room` looks at one part in so many of the tasks."""
FEWEST_TASKS = 2 * PARTS


@dataclass(frozen=True, slots=True)
class Triaged:
    """One group of one step."""

    step: int
    task: str
    """The task's id."""
    tags: tuple[str, ...]
    cause: str
    """One of `CAUSES`."""
    variance: float
    """Sample variance of the values that the filter looks at."""
    episodes: int
    """Members whose success is known."""
    successes: int


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """A task over a run."""

    task: str
    tags: tuple[str, ...]
    visits: tuple[Triaged, ...]
    """By step."""

    @property
    def now(self) -> str:
        """What the task is, by all its visits (`kind_of`). unpaid: a visit was, and no episode ever succeeded."""
        unpaid = any(visit.cause == "unpaid" for visit in self.visits)
        known = [(visit.episodes, visit.successes) for visit in self.visits if visit.episodes]
        if not known and not unpaid:
            return self.visits[-1].cause
        return kind_of(known, unpaid and not any(visit.successes for visit in self.visits))


def kind_of(visits: Sequence[tuple[int, int]], unpaid: bool) -> str:
    """`solved`, `unpaid`, `failed` or `mixed`, which is worth training on and the kind of a task without visits.

    `visits`: (episodes whose success is known, successes), oldest first. solved, failed: with a chance of at least a
    half the next group will succeed, or fail, in every member. The belief weighs the k-th last visit by .8^(k - 1).
    """
    if unpaid or not visits:
        return "unpaid" if unpaid else "mixed"
    belief, members = Belief.of(visits, REMEMBERS), visits[-1][0]
    solved, failed = belief.all_right(members) >= 0.5, belief.all_wrong(members) >= 0.5
    return "solved" if solved else "failed" if failed else "mixed"


@dataclass(frozen=True, slots=True)
class Shares:
    """How the groups of one kind of task were spread over the causes."""

    label: str
    groups: int
    shares: dict[str, float]
    """By cause, adding to 1."""


def triage(step: int, groups: Sequence[Group], on: str) -> list[Triaged]:
    """The groups of a step that have two scored members. `on`: the values that the filter looks at."""
    found = []
    for group, values_G in zip(groups, map(scored, values_on(groups, on)), strict=True):
        if len(values_G) >= 2:
            known = [trajectory.success for trajectory in group.trajectories if trajectory.success is not None]
            cause, variance = cause_of(group, values_G), sample_variance(values_G)
            found.append(Triaged(step, group.task.id, group.task.tags, cause, variance, len(known), sum(known)))
    return found


def reports_progress(groups: Iterable[Group]) -> bool:
    """Whether blind groups can be distinguished from failed ones."""
    return any(trajectory.progress is not None for group in groups for trajectory in group.trajectories)


def histories(triaged: Iterable[Triaged]) -> list[TaskHistory]:
    """Every task with its visits, in the order in which tasks were met."""
    visits: dict[str, list[Triaged]] = {}
    for one in triaged:
        visits.setdefault(one.task, []).append(one)
    return [
        TaskHistory(task, of_task[0].tags, tuple(sorted(of_task, key=lambda visit: visit.step)))
        for task, of_task in visits.items()
    ]


def room_of(tasks: Sequence[TaskHistory]) -> Metric:
    """`room` of the tasks that were visited at least twice: every other visit against the visits between."""
    again = [task for task in tasks if len(task.visits) > 1]
    halves = [[fmean(visit.variance for visit in task.visits[half::2]) for task in again] for half in range(2)]
    return room([task.task for task in again], halves)


def room(names: Sequence[str], variances_HP: Sequence[Sequence[float]]) -> Metric:
    """`ranking/room`: how much a choice of tasks can gain. Near 1 there is nothing to choose.

    `variances_HP`: the variance of each task in either half of its episodes. One half ranks the tasks, and the other
    measures the mean variance of the best eighth over the mean of all; then the other way round, and the mean of both.
    Measured in the half that ranks them, the best would look better than they are. Equal variances are ordered by a
    hash of the name. The interval is a delete-one-task jackknife with the rankings as they are. With fewer than 16
    tasks there is no value.
    """
    count = len(names)
    if count < FEWEST_TASKS:
        return Metric("ranking/room", None, count, why=f"fewer than {FEWEST_TASKS} tasks were played twice")
    halves_HP = np.asarray(variances_HP)
    if (np.count_nonzero(halves_HP, axis=1) < 2).any():
        return Metric("ranking/room", None, count, why="in one half of the episodes fewer than two tasks vary")
    ties = [hashlib.sha256(name.encode()).digest() for name in names]
    value, deleted_P = 0.0, np.zeros(count)
    for ranks_P, measures_P in (halves_HP, halves_HP[::-1]):
        best = sorted(range(count), key=lambda place: (-ranks_P[place], ties[place]))[: count // PARTS]
        best_P = np.isin(np.arange(count), best).astype(np.float64)
        value += measures_P[best].mean() / measures_P.mean() / 2
        means_P = (measures_P.sum() - measures_P) / (count - 1)
        deleted_P += (measures_P[best].sum() - best_P * measures_P) / (len(best) - best_P) / means_P / 2
    return Metric("ranking/room", value, count, *jackknife_interval(value, deleted_P).cut(floor=0.0))


def shares_by_tag(triaged: Iterable[Triaged]) -> list[Shares]:
    """One row per tag, the tag with most groups first. A group counts under each of its tags. Without tags: no row."""
    tagged: dict[str, list[str]] = {}
    for one in triaged:
        for tag in one.tags:
            tagged.setdefault(tag, []).append(one.cause)
    rows = [shares_of(tag, causes) for tag, causes in tagged.items()]
    return sorted(rows, key=lambda row: (-row.groups, row.label))


def shares_of(label: str, causes: Sequence[str]) -> Shares:
    counts = Counter(causes)
    return Shares(label, len(causes), {cause: counts[cause] / len(causes) for cause in CAUSES})
