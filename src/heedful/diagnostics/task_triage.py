"""Why prompts teach nothing, prompt by prompt: solved, blind or failed, for how long, and what to do about each.

A prompt that was seen once has no history. A prompt whose environment reports no progress is never called blind,
because it cannot be distinguished from a failed one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from heedful.diagnostics.signal import cause_of
from heedful.diagnostics.statistics.group_statistics import scored, values_on
from heedful.types import Group, Verdict

CAUSES = ("mixed", "solved", "blind", "failed")
"""Only `mixed` groups teach. Defined by `signal.cause_metrics`."""

ADVICE = {
    "solved": "Drop these tasks or make them harder: they cost episodes, and only regularisers act on them.",
    "blind": "Correct the reward: members got differently far and earned the same. Reward progress, or parts of the "
    "answer.",
    "failed": "Nothing to imitate: easier tasks first (a curriculum), the task in smaller parts, a reward for the "
    "process, or demonstrations.",
}
UNTOLD = "The environment reports no progress: failed groups may be blind ones."


@dataclass(frozen=True, slots=True)
class Triaged:
    """One group of one step."""

    step: int
    task: str
    """The task's id."""
    tags: tuple[str, ...]
    cause: str
    """One of `CAUSES`."""
    kept: bool | None
    """The filter kept it; `None` where nothing was filtered."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Consecutive visits in which a task was of the same kind."""

    cause: str
    visits: int
    first: int
    """The step of the first of them."""
    last: int


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """A task over a run."""

    task: str
    tags: tuple[str, ...]
    visits: tuple[Triaged, ...]
    """By step."""

    @property
    def stays(self) -> tuple[Stay, ...]:
        """What it was, visit by visit, equal neighbours joined."""
        found = []
        for cause, group in groupby(self.visits, key=lambda visit: visit.cause):
            visits = list(group)
            found.append(Stay(cause, len(visits), visits[0].step, visits[-1].step))
        return tuple(found)

    @property
    def longest(self) -> Stay | None:
        """Its longest stay without signal, the latest of equals; `None` if it was mixed at every visit."""
        silent = [stay for stay in self.stays if stay.cause != "mixed"]
        return max(silent, key=lambda stay: (stay.visits, stay.last), default=None)

    @property
    def trained(self) -> int | None:
        """Visits in which the filter kept it."""
        kept = [visit.kept for visit in self.visits if visit.kept is not None]
        return sum(kept) if kept else None


@dataclass(frozen=True, slots=True)
class Shares:
    """How the groups of one kind of task were spread over the causes."""

    label: str
    groups: int
    shares: dict[str, float]
    """By cause, adding to 1."""


def triage(step: int, groups: Sequence[Group], verdicts: Sequence[Verdict] | None, on: str) -> list[Triaged]:
    """The groups of a step that have two scored members. `on`: the values that the filter looks at."""
    kept: Sequence[bool | None] = [None] * len(groups) if verdicts is None else [verdict.kept for verdict in verdicts]
    values_PG = [scored(values_G) for values_G in values_on(groups, on)]
    return [
        Triaged(step, group.task.id, group.task.tags, cause_of(group, values_G), keeps)
        for group, values_G, keeps in zip(groups, values_PG, kept, strict=True)
        if len(values_G) >= 2
    ]


def reports_progress(groups: Iterable[Group]) -> bool:
    """Whether blind groups can be distinguished from failed ones."""
    return any(trajectory.progress is not None for group in groups for trajectory in group.trajectories)


def histories(triaged: Iterable[Triaged]) -> list[TaskHistory]:
    """Every task with its visits, those that taught nothing for the longest time first."""
    visits: dict[str, list[Triaged]] = {}
    for one in triaged:
        visits.setdefault(one.task, []).append(one)
    found = [
        TaskHistory(task, of_task[0].tags, tuple(sorted(of_task, key=lambda visit: visit.step)))
        for task, of_task in visits.items()
    ]
    return sorted(found, key=_longest_first)


def _longest_first(history: TaskHistory) -> tuple[int, int, str]:
    longest = history.longest
    return (-longest.visits, -longest.last, history.task) if longest else (0, 0, history.task)


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
