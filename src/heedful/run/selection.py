"""The path from collected groups to training groups: surplus, filter, guard, memory - in this order. Torch-free."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from typing import Any

from heedful.boundary import Count, Share, settings
from heedful.diagnostics.signal import cause_of
from heedful.diagnostics.statistics.beliefs import Belief
from heedful.diagnostics.statistics.group_statistics import is_constant, sample_variance, scored, values_on
from heedful.diagnostics.task_triage import REMEMBERS
from heedful.envs.common.helped import is_helped
from heedful.filters import Remembering, Visit
from heedful.protocols import Filter
from heedful.rollout.choosers import REMEMBERED
from heedful.rollout.rounds import Collection
from heedful.training.replay import Success
from heedful.training.samples import Row
from heedful.types import HELPED, Group, Metric, Verdict


@settings
class Coverage:
    """The rule for starved tasks of a pool, and the number of them that a step may re-admit."""

    rate: Share = 0.0
    """Share of a step's groups that may be re-admitted although the filter dropped them, rounded up. 0 = none."""
    patience: Count = 4
    """Visits in a row without being trained on after which a task is starved."""

    def most(self, groups: int) -> int:
        """The number of groups that may be re-admitted, out of `groups`."""
        return math.ceil(self.rate * groups)


def readmit(
    verdicts: Sequence[Verdict],
    names: Sequence[str],
    skips: Sequence[int],
    varies: Sequence[bool],
    patience: int,
    most: int,
) -> list[Verdict]:
    """The verdicts, with at most `most` dropped groups of starved tasks re-admitted: weight 1, reason `readmitted`.

    `names`: the tasks. `skips`: for each task the number of visits in a row without being trained on, before this step.
    `varies`: whether the group varies. The task with most skips comes first, and equal ones are ordered by name, so the
    order of groups does not matter.

    A group that does not vary is never re-admitted: its advantages are zeros, and it would only dilute the others. A
    guard cannot help with a task that the policy always or never solves. Only another policy can.
    """
    waiting = [
        (-skipped, name, group)
        for group, (name, skipped) in enumerate(zip(names, skips, strict=True))
        if varies[group] and skipped >= patience and not verdicts[group].kept
    ]
    chosen = {group for _, _, group in sorted(waiting)[:most]}
    return [
        replace(verdict, weight=1.0, reason="readmitted") if group in chosen else verdict
        for group, verdict in enumerate(verdicts)
    ]


def weigh_by_task(verdicts: Sequence[Verdict], groups: Sequence[Group], usual: int, less: int) -> list[Verdict]:
    """The verdicts with weights under which each task counts alike, whatever the size of its group.

    An average of the loss counts a group by its members. The expected gradient of one member's term is that of the
    task's success times 1 under `leave_one_out` (`less` 0), and (n - 1) / n under `group` without the division by the
    deviation (`less` 1). So a group of n scored members gets the factor (usual - less) / (n - less). `usual`: the size
    that keeps its weight.
    """
    sizes = [len(scored([trajectory.reward for trajectory in group.trajectories])) for group in groups]
    return [
        replace(verdict, weight=verdict.weight * (usual - less) / (size - less)) if verdict.kept else verdict
        for verdict, size in zip(verdicts, sizes, strict=True)
    ]


FRESH = "fresh tasks at every step: none is seen twice (--tasks N draws from a pool)"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task's past."""

    visits: int = 0
    """Steps that drew the task."""
    episodes: int = 0
    """Scored episodes."""
    successes: int = 0
    trained: int = 0
    """Visits after which the update used the task's group."""
    last_trained: int | None = None
    """The step of the last such visit."""
    skips: int = 0
    """Visits since the last trained one, or since the first, without being trained on."""
    earlier: tuple[Visit, ...] = ()
    """The filter's values in the last visits, oldest first."""
    outcomes: tuple[tuple[int, int], ...] = ()
    """Episodes whose success is known, and successes, in the last visits with any, oldest first."""
    seen: int = -1
    """The step of the last visit."""
    unpaid: int = 0
    """Visits that showed a broken reward (`signal.cause_of`)."""
    success: Success | None = None
    """The newest one, where the memory keeps successes."""

    def after(self, step: int, group: Group, values: Sequence[float], trained: bool) -> TaskRecord:
        """The record after one more visit. `values`: the scored values that the filter used."""
        known = [trajectory.success for trajectory in group.trajectories if trajectory.success is not None]
        return TaskRecord(
            self.visits + 1,
            self.episodes + len(known),
            self.successes + sum(known),
            self.trained + trained,
            step if trained else self.last_trained,
            0 if trained else self.skips + 1,
            (*self.earlier, Visit.of(values))[-REMEMBERED:] if values else self.earlier,
            (*self.outcomes, (len(known), sum(known)))[-REMEMBERED:] if known else self.outcomes,
            step,
            self.unpaid + (len(values) > 1 and cause_of(group, values) == "unpaid"),
            self.success,
        )


class TaskMemory:
    """The records of a pool's tasks, by id. A task that was never drawn has an empty one."""

    def __init__(self, keeps_successes: bool = False) -> None:
        """`keeps_successes`: the newest success of each task without help, for replay."""
        self.keeps_successes = keeps_successes
        self.records: dict[str, TaskRecord] = {}

    def of(self, task: str) -> TaskRecord:
        return self.records.get(task, TaskRecord())

    def observe(
        self,
        step: int,
        groups: Sequence[Group],
        values_PG: Sequence[Sequence[float | None]],
        verdicts: Sequence[Verdict],
    ) -> None:
        """Record one step. The verdicts decide which groups were trained on."""
        for group, values_G, verdict in zip(groups, values_PG, verdicts, strict=True):
            record = self.of(group.task.id).after(step, group, scored(values_G), verdict.kept)
            if self.keeps_successes and HELPED not in group.task.tags:
                chance = Belief.of(record.outcomes, REMEMBERS).mean
                record = replace(record, success=Success.of(group, chance) or record.success)
            self.records[group.task.id] = record

    def state(self) -> dict[str, Any]:
        trees = {
            task: {**asdict(record), "earlier": [astuple(visit) for visit in record.earlier]}
            for task, record in self.records.items()
        }
        if not self.keeps_successes:  # a state is what it was before there was replay
            for tree in trees.values():
                del tree["success"]
        return trees

    def load_state(self, state: Mapping[str, Any] | None, same_values: bool = True) -> None:
        """Load a state that `state` gave, also after it has been JSON.

        `same_values`: the filter reads the values that it read before. If not, those of earlier visits are forgotten.
        Raises ValueError for `None`, the state of a run without a memory.
        """
        if state is None:
            raise ValueError("a memory of the pool's tasks was expected, and the run has drawn fresh tasks so far")
        self.records = {
            task: TaskRecord(
                **{
                    **tree,
                    "earlier": tuple(Visit(*visit) for visit in tree["earlier"] if same_values),
                    "outcomes": tuple(map(tuple, tree.get("outcomes", ()))),  # 0.1.0 kept none
                    "success": _success(tree.get("success")),
                }
            )
            for task, tree in state.items()
        }

    def table(self) -> list[dict[str, Any]]:
        """One row per task seen, by name, without what a later step alone needs: for files and people."""
        inner = ("earlier", "outcomes", "seen", "unpaid", "success")
        names = [each.name for each in fields(TaskRecord) if each.name not in inner]
        return [
            {"task": task, **{name: getattr(record, name) for name in names}}
            for task, record in sorted(self.records.items())
        ]


@dataclass(slots=True)
class Selection:
    """Chooses groups for a whole run, and remembers its tasks where they come from a pool."""

    filter: Filter
    coverage: Coverage = field(default_factory=Coverage)
    memory: TaskMemory | None = None
    """`None`: every step draws fresh tasks."""
    unit: tuple[int, int] | None = None
    """(a, b): a group of n scored members weighs (a - b) / (n - b) as much as without it. `None`: each alike."""

    def past(self, task: str) -> Sequence[Visit]:
        """The filter's values in the last visits to a task, oldest first."""
        return () if self.memory is None else self.memory.of(task).earlier

    def choose(self, step: int, collection: Collection, rng: random.Random) -> list[Verdict]:
        """The verdicts of one step. Afterwards the memory includes the step.

        Under dynamic sampling the filter sees the first groups that vary, as many as were asked for. The others are
        `surplus` where they vary too, else `constant` or `unscored`. Then the guard re-admits starved tasks.
        """
        groups, memory = collection.groups, self.memory
        values_PG = values_on(groups, self.filter.on)
        verdicts = [_without_filter(scored(values_G)) for values_G in values_PG]  # until the filter has seen a group
        judged = list(range(len(groups)))
        if collection.ending != "off":
            varying = [group for group, verdict in enumerate(verdicts) if verdict.reason == "surplus"]
            judged = varying[: collection.wanted]
        chooses = self.filter
        if memory is not None and isinstance(chooses, Remembering):
            chooses = chooses.after([memory.of(groups[group].task.id).earlier for group in judged])
        for group, verdict in zip(judged, chooses([values_PG[group] for group in judged], rng), strict=True):
            verdicts[group] = verdict
        if memory is not None:
            names = [group.task.id for group in groups]
            verdicts = readmit(
                verdicts,
                names,
                [memory.of(name).skips for name in names],
                [not is_constant(scored(values_G)) for values_G in values_PG],
                self.coverage.patience,
                self.coverage.most(collection.wanted),
            )
            memory.observe(step, groups, values_PG, verdicts)
        return verdicts if self.unit is None else weigh_by_task(verdicts, groups, *self.unit)

    def metrics(self, verdicts: Sequence[Verdict]) -> list[Metric]:
        """`filter/starved_tasks`, `/longest_skip` and `/readmitted`, after `choose`."""
        if self.memory is None:
            names = ("starved_tasks", "longest_skip", "readmitted")
            return [Metric(f"filter/{name}", None, why=FRESH) for name in names]
        # An id with help is drawn no more once its help has changed, and would starve for ever.
        skips = [record.skips for name, record in self.memory.records.items() if not is_helped(name)]
        starved = sum(skipped >= self.coverage.patience for skipped in skips)
        readmitted = sum(verdict.reason == "readmitted" for verdict in verdicts)
        return [
            Metric("filter/starved_tasks", float(starved), len(skips)),
            Metric("filter/longest_skip", float(max(skips, default=0)), len(skips)),
            Metric("filter/readmitted", float(readmitted), len(verdicts)),
        ]


def _success(tree: Mapping[str, Any] | None) -> Success | None:
    if tree is None:
        return None
    return Success(**{**tree, "rows": tuple(Row(**_as_tuples(row)) for row in tree["rows"])})


def _as_tuples(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in tree.items()}


def _without_filter(values: Sequence[float]) -> Verdict:
    """The verdict on a group that the filter does not see."""
    if len(values) < 2:
        return Verdict(0.0, "unscored", None)
    variance = sample_variance(values)
    return Verdict(0.0, "surplus" if variance > 0 else "constant", variance)
