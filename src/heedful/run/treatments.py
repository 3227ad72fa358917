"""Treatments of the tasks of a pool by the cause for which they teach nothing: skip, exclude, replay, help.

The memory of the tasks and the environment's solver decide, and nothing else. So a resumed run treats alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

from heedful.boundary import listed
from heedful.diagnostics.statistics.beliefs import Belief
from heedful.diagnostics.statistics.group_statistics import scored
from heedful.diagnostics.task_triage import REMEMBERS, kind_of
from heedful.envs.common.helped import Helped
from heedful.rollout.choosers import probes_among
from heedful.run.selection import TaskMemory
from heedful.seeds import stream
from heedful.training.replay import Success
from heedful.types import PROBE, Group, Metric, Task, without_help

Action = Literal["skip", "exclude", "replay", "help"]

CAUSES: Mapping[Action, str] = {"skip": "solved", "exclude": "unpaid", "replay": "failed", "help": "failed"}
"""Action -> its cause. A task that failed gets help where it has no success to replay. Tasks of any other kind are
played as they are."""

FLOOR = 0.125
"""Share of a step's tasks that is drawn uniformly and played without treatment. It finds tasks that changed their kind,
and shows success as it is. Without `skip` and `help` nothing but unpaid tasks is played otherwise, so there is none."""


@dataclass(frozen=True, slots=True)
class Treated:
    """The treatments of one step."""

    left_out: frozenset[str] = frozenset()
    """Ids of tasks that the step does not draw: excluded, and skipped."""
    turns: Mapping[str, int] = field(default_factory=dict)
    """Id -> turns of help."""
    successes: Mapping[str, Success] = field(default_factory=dict)
    """Id -> the success that is replayed if the step plays the task."""
    probes: tuple[Task, ...] = ()
    """Tasks that the step plays without treatment."""
    metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True, slots=True)
class Treatments:
    """Decides the treatment of every task of a pool before each step.

    Raises ValueError, a sentence, where the environment cannot help and help is asked for.
    """

    actions: Sequence[Action]
    dealt: bool
    """Control: task k gets the treatment of another task, the same one at every step."""
    env: Helped
    pool: Sequence[Task]
    memory: TaskMemory
    groups: int
    """Tasks that a step draws."""
    seed: int

    def __post_init__(self) -> None:
        if "help" in self.actions:
            self.env.check(self.pool)

    def at(self, step: int) -> Treated:
        """The treatments before this step.

        Raises ValueError where the solver is not paid on so many tasks that too few are left to train on. Visits alone
        may be wrong about a task, so as many tasks that they call unpaid stay in the pool as a step needs.
        """
        if not self.actions:
            return Treated()
        rng, causes = stream(self.seed, "treat", step), [self.cause(task) for task in self.pool]
        given = dict(zip((task.id for task in self._targets()), causes, strict=True))

        def getting(action: Action) -> list[Task]:
            return [task for task in self.pool if action in self.actions and given[task.id] == CAUSES[action]]

        unpaid = [task.id for task, cause in zip(self.pool, causes, strict=True) if cause == "unpaid"]
        named = listed(unpaid, most=5)
        excluded, most = getting("exclude"), len(self.pool) - self.groups
        if len(excluded) > most:
            paid = len(self.pool) - sum(bool(self.env.unpaid(task)) for task in self.pool)
            if paid < self.groups:
                raise ValueError(
                    f"Expected at least the {self.groups} tasks of a step that pay success, found {paid} in the pool. "
                    f"Unpaid are {named}. Mend the reward, enlarge the pool, or leave exclude out of --treat."
                )
            excluded = sorted(rng.sample(excluded, len(excluded)), key=lambda task: not self.env.unpaid(task))[:most]
        left = [task for task in self.pool if task not in excluded]
        floor = probes_among(self.groups, FLOOR, rng) if {"skip", "help"} & set(self.actions) else 0
        probes = rng.sample(left, floor)
        solved = [task.id for task in getting("skip") if task not in probes]
        successes = {task.id: success for task in getting("replay") if (success := self.memory.of(task.id).success)}
        skipped = rng.sample(solved, min(len(solved), len(left) - self.groups))
        return Treated(
            frozenset({task.id for task in self.pool} - {task.id for task in left} | set(skipped)),
            {task.id: self.turns(task) for task in getting("help") if task.id not in successes},
            successes,
            tuple(replace(task, tags=(*task.tags, PROBE)) for task in probes),
            (
                Metric("treat/unpaid", float(len(unpaid)), len(self.pool), why=named),
                Metric("treat/skipped", float(len(skipped)), len(self.pool)),
            ),
        )

    def _targets(self) -> Sequence[Task]:
        """The task that gets the treatment of each task of the pool."""
        return stream(self.seed, "dealt").sample(self.pool, len(self.pool)) if self.dealt else self.pool

    def begun(self, tasks: Sequence[Task], treated: Treated) -> list[Task]:
        """The tasks of a draw, with help where it is given. Probes have none."""
        return [self.env.given(task, 0 if PROBE in task.tags else treated.turns.get(task.id, 0)) for task in tasks]

    def replays(self, treated: Treated, groups: Sequence[Group]) -> Mapping[int, Success] | None:
        """Place of a group -> the success that is one more member of it in the update. `None` without `replay`.

        Only for groups with a scored member, whose mean is the baseline, and never for probes.
        """
        if "replay" not in self.actions:
            return None
        return {
            place: treated.successes[group.task.id]
            for place, group in enumerate(groups)
            if group.task.id in treated.successes
            and PROBE not in group.task.tags
            and scored([trajectory.reward for trajectory in group.trajectories])
        }

    def metrics(self, treated: Treated, groups: Sequence[Group]) -> list[Metric]:
        """`treat/*` of a step. Nothing where tasks are not treated."""
        if not self.actions:
            return []
        turns = [turns for group in groups if (turns := without_help(group.task)[1])]
        return [
            *treated.metrics,
            Metric("treat/helped", float(len(turns)), len(groups)),
            Metric("treat/turns", fmean(turns), len(turns))
            if turns
            else Metric("treat/turns", None, 0, why="no task was helped"),
        ]

    def cause(self, task: Task) -> str:
        """The kind of a task by its visits without help: `solved`, `unpaid`, `failed` or `mixed`.

        Where the environment has a solver that can play it, its episode says what is unpaid, before the first visit.
        """
        record, unpaid = self.memory.of(task.id), self.env.unpaid(task)
        if unpaid is None:
            unpaid = record.unpaid > 0 and not record.successes
        return kind_of(record.outcomes, unpaid)

    def turns(self, task: Task) -> int:
        """The turns of help of the next visit, by the visits with each number of turns. 0: none.

        Help begins with all turns but the last. It is halved where a group succeeded in more than half of its members,
        or where the next one will succeed in all of them with a chance of at least a half. After two visits in a row
        with so many turns, and without success, it goes up, half of the way to the solver's length. Visits without help
        count from the first one on, so one more failure after its end brings help back.
        """
        length = self.env.way(task).length
        records = {turns: self.memory.of(self.env.given(task, turns).id) for turns in range(length)}
        helped = [turns for turns, record in records.items() if turns and record.outcomes]
        if not helped:
            return length - 1
        last = max(helped, key=lambda turns: records[turns].seen)
        now = _next(last, length, records[last].outcomes)
        returned = now == 0 and records[0].seen > records[last].seen and bool(records[0].outcomes)
        return _next(0, length, records[0].outcomes) if returned else now


def _next(turns: int, length: int, outcomes: Sequence[tuple[int, int]]) -> int:
    """The turns of help after these visits with `turns` of them: (scored episodes, successes), oldest first."""
    episodes, successes = outcomes[-1]
    if turns and (2 * successes > episodes or Belief.of(outcomes, REMEMBERS).all_right(episodes) >= 0.5):
        return turns // 2
    failed = len(outcomes) > 1 and not any(right for _, right in outcomes[-2:])
    return (turns + length) // 2 if failed else turns
