"""Which tasks of a pool a step plays, chosen before sampling by the outcomes of each task's own past.

A chooser is frozen and has no state. All that it knows is in the memory of the tasks, so a resumed run chooses alike. A
part of the tasks, the floor, is drawn uniformly from the pool. These draws have the tag `probe`: success and alarms
read them alone, since a chooser keeps the success of its own choice near the middle.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from heedful.boundary import NotNegative, Share, Text, settings
from heedful.diagnostics.statistics.beliefs import Belief
from heedful.filters import Visit
from heedful.rollout.plans import POWERS, Value
from heedful.rollout.rounds import Past
from heedful.storage import RunFolder, read_rollouts
from heedful.types import PROBE, Task, without_help

REMEMBERED = 12
"""Visits whose values are kept for choosers and filters. With a discount of .8 the last counts .07."""

LEAST_CHANCE = 0.01
"""`skip_settled` plays a task at least as often, however long it has been settled."""


class Tasks(Protocol):
    """The source of a step's tasks, such as a `TaskStream`."""

    @property
    def pool(self) -> tuple[Task, ...] | None:
        """The fixed pool, or `None` if each draw is fresh."""
        ...

    def next(self, count: int, beside: Collection[str] = ()) -> Sequence[Task]:
        """The next `count` tasks, distinct by id, and none of the ids `beside`."""
        ...


@dataclass(frozen=True, slots=True)
class Listed:
    """A pool that is given as a list, as other trainers have it."""

    pool: tuple[Task, ...]
    rng: random.Random

    def next(self, count: int, beside: Collection[str] = ()) -> list[Task]:
        return self.rng.sample([task for task in self.pool if task.id not in beside], count)


@dataclass(slots=True)
class Visits:
    """The last visits to each task, by id: all that a chooser knows, where another trainer plays the tasks."""

    visits: dict[str, tuple[Visit, ...]] = field(default_factory=dict)

    def past(self, task: str) -> Sequence[Visit]:
        return self.visits.get(task, ())

    def observe(self, task: str, values: Sequence[float]) -> None:
        """Remember a group's scored outcomes."""
        if values:
            self.visits[task] = (*self.past(task), Visit.of(values))[-REMEMBERED:]

    def state(self) -> dict[str, Any]:
        """The state that a resumed run needs, as a JSON tree."""
        return {task: [astuple(visit) for visit in visits] for task, visits in self.visits.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.visits = {task: tuple(Visit(*visit) for visit in visits) for task, visits in state.items()}


@dataclass(frozen=True, slots=True)
class Offer:
    """What a chooser chooses from."""

    tasks: Tasks
    past: Past
    step: int
    drawn: Collection[str]
    """Ids of the tasks that this step has drawn already."""
    rng: random.Random

    @property
    def left(self) -> list[Task]:
        """The tasks of the pool that this step has not drawn."""
        return [task for task in self.tasks.pool or () if task.id not in self.drawn]


class Chooser(Protocol):
    """Chooses tasks. Its implementations are frozen dataclasses."""

    def choose(self, count: int, offer: Offer) -> Sequence[Task]:
        """`count` distinct tasks that the step has not drawn."""
        ...


def by_key(count: int, offer: Offer, floor: float, key: Callable[[Sequence[Visit]], float]) -> list[Task]:
    """The tasks of the largest keys, then the floor: that share of `count`, drawn uniformly from the pool.

    `key`: called with the earlier visits to each task, in the order of the pool. Equal keys are ordered by chance.
    """
    left = offer.left
    probes = offer.rng.sample(left, probes_among(count, floor, offer.rng))
    probed = {task.id for task in probes}
    keyed = [(key(offer.past(task.id)), offer.rng.random(), task) for task in left]
    ranked = sorted(keyed, key=lambda each: each[:2], reverse=True)
    chosen = [task for _, _, task in ranked if task.id not in probed][: count - len(probes)]
    return [*chosen, *map(as_probe, probes)]


def probes_among(count: int, floor: float, rng: random.Random) -> int:
    """The number of probes among `count` tasks: the share `floor` of them, rounded up.

    Where rounding up leaves no other task, it is rounded by chance. So of single tasks that share is a probe.
    """
    exact = floor * count
    up = math.ceil(exact)
    return up if up < count or exact == up else int(exact) + (rng.random() < exact - int(exact))


def as_probe(task: Task) -> Task:
    return replace(task, tags=(*task.tags, PROBE))


@settings
class InOrder:
    """No choice: fresh tasks at every step, or tasks drawn uniformly from the pool."""

    def choose(self, count: int, offer: Offer) -> Sequence[Task]:
        return offer.tasks.next(count, beside=offer.drawn)


@settings
class Thompson:
    """Draw a chance of success from the belief on each task, and take the tasks of the largest value.

    Beliefs begin as Beta(1/2, 1/2). Drawing explores: tasks that nobody has played for long are uncertain.

    Source: MoPPS (Qu et al. 2025, arXiv:2507.04632) draws from such beliefs. Deviations: it takes the tasks nearest to
    1/2 among 8 or 16 times as many candidates, and has no floor. Here the whole pool is ranked, by p (1 - p)^2 by
    default, the factor of the value in Knapsack RL (Li et al. 2025, arXiv:2509.25849).
    """

    value: Value = "harder"
    """Value of a task with chance p. harder: p (1 - p)^2, largest at 1/3. middle: p (1 - p), largest at 1/2."""
    discount: Share = 0.5
    """Weight of a task's visit relative to its next one. Forgetting follows a policy that learns, and explores."""
    floor: Share = 0.125
    """Share of the tasks that is drawn uniformly, as probes."""

    def choose(self, count: int, offer: Offer) -> Sequence[Task]:
        def key(visits: Sequence[Visit]) -> float:
            belief = Belief.of([(visit.count, visit.total) for visit in visits], self.discount)
            chance = offer.rng.betavariate(belief.ones, belief.zeros)
            return chance * (1 - chance) ** POWERS[self.value]

        return by_key(count, offer, self.floor, key)


@settings
class SkipSettled:
    """Skip tasks whose last groups all succeeded, or all failed: after z such visits in a row play with chance
    `chance`^z, and at least .01.

    Source: GRESO (Zheng et al. 2025, arXiv:2506.02177). Deviations: there the chance is constant in the first
    epoch alone. Then it moves by .01 a step towards a target share of skipped tasks. A step here takes its tasks from
    the whole pool, and plays skipped ones where no others are left.
    """

    chance: Share = 0.5
    """The chance after one settled visit."""
    easy: Share = 0.98
    """Mean outcome of a group at or above which it has succeeded."""
    hard: Share = 0.11
    """Mean outcome of a group at or below which it has failed."""
    floor: Share = 0.125
    """Share of the tasks that is drawn uniformly, as probes."""

    def choose(self, count: int, offer: Offer) -> Sequence[Task]:
        def key(visits: Sequence[Visit]) -> float:
            means = [visit.total / visit.count for visit in reversed(visits)]
            easy, hard = [mean >= self.easy for mean in means], [mean <= self.hard for mean in means]
            in_a_row = max(len(list(takewhile(bool, settled))) for settled in (easy, hard))
            return float(not in_a_row or offer.rng.random() < max(self.chance**in_a_row, LEAST_CHANCE))

        return by_key(count, offer, self.floor, key)


@settings
class ByPool:
    """Draw tasks by weight: of tasks whose last group was easy, hard or neither. A task without a visit weighs 1.

    Source: the difficulty pools of prime-rl (PrimeIntellect-ai/prime-rl, pull request 3261). Deviations: tasks of one
    step are distinct, so they are drawn without replacement (Efraimidis and Spirakis 2006). Thresholds and weights are
    settings there without a default.
    """

    easy: Share = 1.0
    """Mean outcome of the last group at or above which a task is easy."""
    hard: Share = 0.0
    """Mean outcome of the last group at or below which a task is hard."""
    easy_weight: NotNegative = 0.25
    hard_weight: NotNegative = 0.25
    """Weights relative to other tasks."""
    floor: Share = 0.125
    """Share of the tasks that is drawn uniformly, as probes."""

    def choose(self, count: int, offer: Offer) -> Sequence[Task]:
        def key(visits: Sequence[Visit]) -> float:
            mean = visits[-1].total / visits[-1].count if visits else math.nan
            weight = self.easy_weight if mean >= self.easy else self.hard_weight if mean <= self.hard else 1.0
            return offer.rng.random() ** (1 / weight) if weight else -1.0

        return by_key(count, offer, self.floor, key)


@settings
class Yoked:
    """Control: the schedule of another run, on the tasks of this run's pool.

    A chooser may gain only because it plays some tasks more often than others. This control repeats tasks at the same
    steps, but which ones does not depend on their outcomes. So the remaining difference is due to the choice. The n-th
    task that the other run met becomes the n-th task of this run's pool.
    """

    run: Text
    """Folder of the other run."""

    def check(self, steps: int, pool: int) -> None:
        """Raises ValueError, a sentence, where the other run does not say what `steps` steps play of `pool` tasks."""
        schedule = _schedule(self.run)
        missing = [step for step in range(steps) if step not in schedule]
        met = 1 + max((place for places in schedule.values() for place, _ in places), default=-1)
        if missing or met > pool:
            found = f"none of step {missing[0]}" if missing else f"{met} tasks"
            raise ValueError(
                f"Expected in {self.run!r} (--choose.run) the stored rollouts of {steps} steps of a run with at most "
                f"{pool} tasks, found {found}. Name a run that is as long and stored its training (--keep-rollouts "
                "all, inside TRL record=True), or train fewer steps."
            )

    def choose(self, count: int, offer: Offer) -> Sequence[Task]:
        pool = offer.tasks.pool or ()
        yoked = [as_probe(pool[place]) if probe else pool[place] for place, probe in _schedule(self.run)[offer.step]]
        once = {task.id: task for task in yoked if task.id not in offer.drawn}  # a step of TRL may show a prompt twice
        taken = dict(list(once.items())[:count])
        rest = [task for task in offer.left if task.id not in taken]
        return [*taken.values(), *offer.rng.sample(rest, count - len(taken))]


@cache
def _schedule(run: str) -> dict[int, list[tuple[int, bool]]]:
    """Step -> the tasks of its groups, by their number in the order in which the run met them, and which are probes.

    A task with help is the task.
    """
    folder, numbers, steps = RunFolder(Path(run)), dict[str, int](), {}
    for step in folder.rollout_steps():
        tasks = [without_help(group.task)[0] for group in read_rollouts(folder.rollouts(step), replies=False).groups]
        steps[step] = [(numbers.setdefault(task.id, len(numbers)), PROBE in task.tags) for task in tasks]
    return steps


CHOOSERS: Mapping[str, type] = {
    "in_order": InOrder,
    "thompson": Thompson,
    "skip_settled": SkipSettled,
    "by_pool": ByPool,
    "yoked": Yoked,
}
"""Choosers by the name that configurations and the command line use."""
