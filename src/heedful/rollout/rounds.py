"""A step as rounds of asks: a plan says which tasks are played, and how many episodes of each.

A plan sees the groups of all rounds so far, and asks for more, or for nothing. It is frozen and has no state: all that
it knows of earlier steps is in the memory of the tasks. All groups are returned.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from heedful.diagnostics.statistics.group_statistics import is_constant, scored, values_on
from heedful.filters import Visit
from heedful.types import Group, Metric, Task

RefillEnding = Literal["off", "enough", "bound", "pool"]

Past = Callable[[str], Sequence[Visit]]
"""The earlier visits to a task of this id, oldest first. Empty where there were none, or where nothing remembers."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A task to play, and the number of its episodes."""

    task: Task
    members: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What a plan knows before a round of one step."""

    wanted: int
    """Groups of a step (`--groups`)."""
    size: int
    """Episodes of a group (`--group-size`)."""
    on: str
    """The value in which a group has to vary, as in `Filter.on`."""
    draw: Callable[[int], Sequence[Task]]
    """Choose so many tasks that this step has not drawn yet."""
    rng: random.Random
    past: Past = lambda task: ()
    tasks: int | None = None
    """Number of tasks to draw from. `None` = no limit."""
    round: int = 0
    """Rounds that were played."""
    groups: tuple[Group, ...] = ()
    """All groups of these rounds."""

    def alike(self, count: int) -> list[Ask]:
        """Asks for `count` further tasks of the usual size. A draw of none would move on the stream of tasks."""
        return [Ask(task, self.size) for task in self.draw(count)] if count else []


class Plan(Protocol):
    """Decides the asks of a step. Its implementations are frozen dataclasses."""

    def ask(self, now: Standing) -> Sequence[Ask]:
        """The asks of the next round. None: the step has all its groups."""
        ...

    def ending(self, now: Standing) -> RefillEnding:
        """How the search for groups that vary stands. `off` where the plan does not search."""
        ...


@dataclass(frozen=True, slots=True)
class Collection:
    """All groups of one step, in the order of their rounds."""

    groups: tuple[Group, ...]
    wanted: int
    """The requested number of groups."""
    ending: RefillEnding
    """off: the plan does not look at what was played. enough: as many groups vary as were wanted. bound: no round was
    left. pool: no task of the pool was left."""
    rounds: int = 1
    collected: int | None = None
    """The number of groups, where they are held elsewhere."""

    def metrics(self) -> list[Metric]:
        why = "dynamic sampling is off (--algorithm.sampling-batches 1)" if self.ending == "off" else ""
        sizes = sorted(len(group.trajectories) for group in self.groups)
        unequal = [("least", sizes[0]), ("most", sizes[-1])] if sizes and sizes[0] < sizes[-1] else []
        return [
            Metric("filter/refill", None if why else self.ending, why=why),
            Metric("filter/draws", float(self.rounds)),
            Metric("filter/collected_groups", float(len(self.groups) if self.collected is None else self.collected)),
            *(Metric(f"filter/{which}_members", float(size), len(sizes)) for which, size in unequal),
        ]


def collect_in_rounds(plan: Plan, start: Standing, play: Callable[[int, Sequence[Ask]], Sequence[Group]]) -> Collection:
    """Play what a plan asks for until it asks for nothing. `play(round, asks)` gives one group for each ask."""
    now = start
    while asks := plan.ask(now):
        now = replace(now, groups=(*now.groups, *play(now.round, asks)), round=now.round + 1)
    return Collection(now.groups, now.wanted, plan.ending(now), now.round)


def count_varying(groups: Sequence[Group], on: str) -> int:
    """Groups whose scored values are not constant."""
    return sum(not is_constant(scored(values)) for values in values_on(groups, on))


def refill_size(needed: int, varying: int, collected: int, most: int, margin: float = 1.0) -> int:
    """The number of groups to draw so that `needed` of them are likely to vary.

    The smallest n with n q - margin sqrt(n q (1 - q)) >= needed, at most `most`. q is the share of groups that varied
    so far, with one varying and one constant group added, so that it is never 0. `margin`: in standard deviations.
    """
    share = (varying + 1) / (collected + 2)
    slack = margin * math.sqrt(share * (1 - share))
    root = (slack + math.sqrt(slack**2 + 4 * share * needed)) / (2 * share)
    return min(most, math.ceil(root**2 - 1e-9))


def at_one_size(groups: Sequence[Group]) -> list[Group]:
    """The groups with as many members as the smallest one has, the first ones of each.

    Shares such as `signal/mixed` depend on the size of a group, and means over episodes on how many a task has. Of
    groups of one size they are means over tasks.
    """
    size = min((len(group.trajectories) for group in groups), default=0)
    return [replace(group, trajectories=group.trajectories[:size]) for group in groups]
