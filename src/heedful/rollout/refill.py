"""Dynamic sampling: further groups are collected until enough of them vary.

There are at most as many draws as allowed, and none is larger than the first. All collected groups are returned. With
one draw allowed, this is plain collection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.diagnostics.statistics.group_statistics import is_constant, scored, values_on
from heedful.types import Group, Metric

RefillEnding = Literal["off", "enough", "bound", "pool"]


@dataclass(frozen=True, slots=True)
class Collection:
    """All groups of one step, in the order of their draws."""

    groups: tuple[Group, ...]
    wanted: int
    """The requested number of groups."""
    ending: RefillEnding
    """off: only one draw is allowed. enough: as many groups vary as were wanted. bound: no draw was left. pool: no task
    of the pool was left."""
    draws: int = 1
    varying: int = 0
    """Groups that vary in the value that the filter looks at."""
    collected: int | None = None
    """The number of groups, where they are held elsewhere."""

    def metrics(self) -> list[Metric]:
        why = "dynamic sampling is off (--algorithm.sampling-batches 1)" if self.ending == "off" else ""
        return [
            Metric("filter/refill", None if why else self.ending, why=why),
            Metric("filter/draws", float(self.draws)),
            Metric("filter/collected_groups", float(len(self.groups) if self.collected is None else self.collected)),
        ]


def collect_until_enough(
    draw: Callable[[int, int], Sequence[Group]], wanted: int, draws: int, on: str, tasks: int | None = None
) -> Collection:
    """Collect `wanted` groups, and more of them while fewer than `wanted` vary, in at most `draws` draws.

    `draw(number, count)` collects `count` groups of tasks that this step has not seen yet. `on`: the value in which a
    group has to vary, as in `Filter.on`. A group with fewer than two scored members does not vary. `tasks`: number of
    tasks to draw from. `None` = no limit.

    A refill draws the number of groups that are likely to be needed (`refill_size`), and never more than `wanted`.

    Source: DAPO's dynamic sampling (Yu et al. 2025, arXiv:2503.14476, section 3.2). Deviation: the paper draws whole
    batches, and has no limit on their number.
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
    """The number of groups to draw so that `needed` of them are likely to vary.

    The smallest n with n q - margin sqrt(n q (1 - q)) >= needed, at most `most`. q is the share of groups that varied
    so far, with one varying and one constant group added, so that it is never 0. `margin`: in standard deviations.
    """
    share = (varying + 1) / (collected + 2)
    slack = margin * math.sqrt(share * (1 - share))
    root = (slack + math.sqrt(slack**2 + 4 * share * needed)) / (2 * share)
    return min(most, math.ceil(root**2 - 1e-9))
