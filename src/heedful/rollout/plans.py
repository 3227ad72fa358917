"""Plans: how a step divides its episodes over tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Interval

from heedful.boundary import Count, Share, settings
from heedful.diagnostics.statistics.beliefs import Belief
from heedful.rollout.rounds import Ask, RefillEnding, Standing, count_varying, refill_size
from heedful.types import Task

Value = Literal["harder", "middle"]
POWERS: Mapping[Value, int] = {"harder": 2, "middle": 1}
"""The value of a task with chance p is p (1 - p)^power. It is largest at 1/3, and at 1/2."""
Members = Annotated[int, Interval(ge=2)]


@settings
class Fixed:
    """One round: `--groups` tasks, `--group-size` episodes of each."""

    def ask(self, now: Standing) -> Sequence[Ask]:
        return [] if now.round else now.alike(now.wanted)

    def ending(self, now: Standing) -> RefillEnding:
        return "off"


@settings
class Refill:
    """Dynamic sampling: further groups are played while fewer than `--groups` of them vary.

    A further round has as many groups as are likely to be needed (`refill_size`), and never more than `--groups`. A
    group with fewer than two scored members does not vary.

    Source: DAPO's dynamic sampling (Yu et al. 2025, arXiv:2503.14476, section 3.2). Deviation: the paper draws whole
    batches, and has no limit on their number.
    """

    batches: Count = 3
    """Most rounds of a step, the first one included. 1 = as plan fixed."""

    def ask(self, now: Standing) -> Sequence[Ask]:
        if not now.round:
            return now.alike(now.wanted)
        if self.ending(now) != "pool":
            return []
        varying, played = count_varying(now.groups, now.on), len(now.groups)
        most = now.wanted if now.tasks is None else min(now.wanted, now.tasks - played)
        return now.alike(min(most, refill_size(now.wanted - varying, varying, played, now.wanted)))

    def ending(self, now: Standing) -> RefillEnding:
        if self.batches == 1:
            return "off"
        if count_varying(now.groups, now.on) >= now.wanted:
            return "enough"
        return "bound" if now.round == self.batches else "pool"


@settings
class Sized:
    """One round of unequal groups: sizes that add up to `--groups` x `--group-size`, and have the largest total value.

    The value of n episodes is the expectation of (1 - p^n - q^n) v(p) under the belief on the task: the chance that the
    group varies, times the value of the task. Beliefs begin as Beta(1/2, 1/2), so equal groups are the best where
    nothing is known. Readings of a step take as many members of each group as the smallest one has.

    Source: Knapsack RL (Li et al. 2025, arXiv:2509.25849). Deviations: a belief in place of the last rate, so a task
    whose last group was constant keeps a value. A step has exactly its budget of episodes.
    """

    value: Value = "harder"
    """Value of a task with chance p. harder: p (1 - p)^2. middle: p (1 - p)."""
    least: Members = 4
    """Episodes of the smallest group."""
    most: Members = 32
    """Episodes of the largest group."""
    candidates: Count = 1
    """Tasks that are drawn for each of the `--groups`. Above 1, a task may get no episode: a choice of tasks, too."""
    discount: Share = 0.5
    """Weight of a task's visit relative to its next one."""
    weigh: Literal["auto", "task", "episode"] = "auto"
    """Weight in the update. task: each task alike, so the objective stays the mean over tasks. episode: a task counts
    by its episodes. auto: task where it is exact, with the advantage leave_one_out, or group without the deviation."""

    def ask(self, now: Standing) -> Sequence[Ask]:
        if now.round:
            return []
        tasks = now.draw(now.wanted * self.candidates)
        return [Ask(task, size) for task, size in zip(tasks, self.sizes(tasks, now), strict=True) if size]

    def sizes(self, tasks: Sequence[Task], now: Standing) -> list[int]:
        """The number of episodes of each task. 0 only with several candidates."""
        sizes = [*([0] if self.candidates > 1 else []), *range(self.least, self.most + 1)]
        pasts = [[(visit.count, visit.total) for visit in now.past(task.id)] for task in tasks]
        beliefs = [Belief.of(past, self.discount) for past in pasts]
        power = POWERS[self.value]
        worths = {belief: [belief.worth(size, power) if size else 0.0 for size in sizes] for belief in set(beliefs)}
        return allocate([worths[belief] for belief in beliefs], sizes, now.wanted * now.size)

    def ending(self, now: Standing) -> RefillEnding:
        return "off"


@settings
class Dealt:
    """Control: the sizes of another plan, dealt to its tasks by chance.

    Unequal groups may gain, or lose, whichever tasks get them. This control has them, too. So the remaining difference
    is due to the choice.
    """

    like: Sized = field(default_factory=Sized)

    def ask(self, now: Standing) -> Sequence[Ask]:
        if now.round:
            return []
        tasks = now.draw(now.wanted * self.like.candidates)
        sizes = self.like.sizes(tasks, now)
        now.rng.shuffle(sizes)
        return [Ask(task, size) for task, size in zip(tasks, sizes, strict=True) if size]

    def ending(self, now: Standing) -> RefillEnding:
        return "off"


PLANS: Mapping[str, type] = {"fixed": Fixed, "refill": Refill, "sized": Sized, "dealt": Dealt}
"""Plans by the name that configurations and the command line use."""


def allocate(worths_PS: Sequence[Sequence[float]], sizes: Sequence[int], budget: int) -> list[int]:
    """The size of each task such that they add up to `budget` and the total worth is the largest, by dynamic programme.

    `worths_PS`: the worth of each task at each of `sizes`. Exact for any worths. Of equal totals it takes the one whose
    last tasks are smaller. Raises ValueError where no sizes add up to the budget.
    """
    best, chosen = [0.0] + [-math.inf] * budget, []
    for worths_S in worths_PS:
        further, choice = [-math.inf] * (budget + 1), [0] * (budget + 1)
        for size, worth in zip(sizes, worths_S, strict=True):
            for spent in range(size, budget + 1):
                total = best[spent - size] + worth
                if total > further[spent]:
                    further[spent], choice[spent] = total, size
        best = further
        chosen.append(choice)
    if best[budget] == -math.inf:
        raise ValueError(f"no sizes of {len(worths_PS)} tasks among {', '.join(map(str, sizes))} add up to {budget}")
    found, left = [], budget
    for choice in reversed(chosen):
        found.append(choice[left])
        left -= choice[left]
    return found[::-1]
