"""Dynamic sampling: further groups are collected until enough of them vary.

Promise: at most so many draws as were allowed, none larger than the first; nothing that was collected is thrown away;
how it ended has a name. With one draw allowed this is plain collection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.statistics.group_statistics import is_constant, scored, values_on
from heedful.types import Group, Metric

RefillEnding = Literal["off", "enough", "bound", "pool"]


@dataclass(frozen=True, slots=True)
class Collection:
    """All groups of one step, in the order in which they were drawn."""

    groups: tuple[Group, ...]
    wanted: int
    """Groups asked for."""
    ending: RefillEnding
    """off: one draw, whatever it holds; enough: so many groups vary; bound: the draws were used up before; pool: no
    task of the pool was left to draw."""
    draws: int = 1
    varying: int = 0
    """Groups that vary in what the filter looks at."""

    def metrics(self) -> list[Metric]:
        why = "dynamic sampling is off (--algorithm.sampling-batches 1)" if self.ending == "off" else ""
        return [
            Metric("filter/refill", None if why else self.ending, why=why),
            Metric("filter/draws", float(self.draws)),
            Metric("filter/collected_groups", float(len(self.groups))),
        ]


def collect_until_enough(
    draw: Callable[[int, int], Sequence[Group]], wanted: int, draws: int, on: str, tasks: int | None = None
) -> Collection:
    """Collect `wanted` groups and, while fewer than that vary, more of them, in at most `draws` draws.

    `draw(number, count)` collects `count` groups of tasks that this step has not seen yet. `on`: the filter's, says in
    what a group has to vary; a group without two scored members does not. `tasks`: how many there are to draw from;
    `None` = no end.

    A refill asks for as many groups as are likely to be needed (`refill_size`), never more than `wanted`.

    Source: DAPO's dynamic sampling (Yu et al. 2025, arXiv:2503.14476, section 3.2). Deviation: there every draw is a
    whole batch, and without an end.
    """
    groups = list(draw(0, wanted))
    varying = count_varying(groups, on)
    done = 1
    while draws > 1 and varying < wanted and done < draws:
        left = wanted if tasks is None else tasks - len(groups)
        size = min(left, refill_size(wanted - varying, varying, len(groups), wanted))
        if size < 1:
            return Collection(tuple(groups), wanted, "pool", done, varying)
        groups += draw(done, size)
        varying = count_varying(groups, on)
        done += 1
    ending: RefillEnding = "off" if draws == 1 else "enough" if varying >= wanted else "bound"
    return Collection(tuple(groups), wanted, ending, done, varying)


def count_varying(groups: Sequence[Group], on: str) -> int:
    """Groups whose scored values are not constant."""
    return sum(not is_constant(scored(values)) for values in values_on(groups, on))


def refill_size(needed: int, varying: int, collected: int, most: int, margin: float = 1.0) -> int:
    """How many groups to draw so that `needed` of them are likely to vary: `margin` standard deviations to spare.

    The share that varies is taken from what was collected, with one group of each kind added, so that it is never 0.
    The smallest n with n q - margin sqrt(n q (1 - q)) >= needed, at most `most`.
    """
    share = (varying + 1) / (collected + 2)
    slack = margin * math.sqrt(share * (1 - share))
    root = (slack + math.sqrt(slack**2 + 4 * share * needed)) / (2 * share)
    return min(most, math.ceil(root**2 - 1e-9))
