"""Filters of groups by how much their members' values vary: by rank, by weight, or by whether they vary at all.

What is kept depends on one number per group. `rank` takes variances from anywhere, for instance an estimate in place of
the sample's variance. `__call__` takes the values and ranks by their sample variance, 1/(G - 1). The rules that turn
numbers into verdicts, and how ties are decided, are in `heedful.filters.ranking`.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Protocol

from annotated_types import Interval

from heedful.boundary import Count, PositiveShare, Text, settings
from heedful.diagnostics.statistics.group_statistics import LARGEST, scored
from heedful.filters.ranking import (
    by_largest,
    by_mass,
    by_rank,
    deviations,
    if_positive,
    positive,
    variances,
)
from heedful.protocols import Filter
from heedful.types import Verdict

LEAST = 1e-12
"""Relative to the largest weight. Without it a high power of a small variance would underflow to 0, which means
dropped."""


class Ranking(Filter, Protocol):
    """A filter that needs only one variance per group."""

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        """The verdicts for these variances: `None` is an unscored group, exactly 0 a constant one."""
        ...


class Ranked(ABC):
    """The common part of the ranking filters. A filter adds its knobs and its rule."""

    __slots__ = ()

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """The verdicts for these values. `spread` is the number that the groups were ranked by."""
        return self.rank(variances(values_PG))

    @abstractmethod
    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        """The verdicts for these variances: `None` is an unscored group, exactly 0 a constant one."""

    @property
    def share(self) -> float | None:
        """The factor of the loss scale `rho`: p of `top_p` and `top_p_std`, `None` elsewhere."""
        return None


@settings
class KeepAll:
    """No filter: every group is kept, constant ones too.

    A group of one is kept as well (actor-critic training needs no group). A larger group with fewer than two scored
    members is dropped as `unscored`, as everywhere.
    """

    on: Text = "outcome"

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance. `None` for a group of one."""
        variances_P = variances(values_PG)
        return [
            Verdict(1.0, "kept", variance)
            if variance is not None or (len(values_G) == 1 and scored(values_G))
            else Verdict(0.0, "unscored", None)
            for values_G, variance in zip(values_PG, variances_P, strict=True)
        ]

    @property
    def share(self) -> float | None:
        """`None`, because this filter has no share."""
        return None


@settings
class DropConstant(Ranked):
    """Keeps every group that is not constant: the filter half of DAPO's dynamic sampling (arXiv:2503.14476)."""

    on: Text = "outcome"

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        return if_positive(variances_P)


@settings
class TopP(Ranked):
    """The smallest set of groups whose sample variances add up to a share p of the total.

    Constant groups are never kept. p = 1 keeps every other group. When all groups are constant, no group is kept. The
    kept groups do not change when all values are multiplied by a constant, as long as no group's range falls below the
    tolerance of `is_constant`.

    Source: RAGEN-2 (arXiv:2604.06268), the rule of its text. Its default code accumulates standard deviations
    (`TopPStd`, there with an absolute epsilon of 0.01), its main table a softmax over them (`Softmax`).
    """

    p: PositiveShare = 0.9
    """Share of the total variance, in (0, 1]."""
    on: Text = "outcome"

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        return by_mass(variances_P, self.p)

    @property
    def share(self) -> float:
        return self.p


@settings
class TopPStd(Ranked):
    """`TopP` with standard deviations instead of variances as masses: flatter, so it keeps more groups at equal p.

    Source: the default of RAGEN-2's released code. Deviation: no absolute epsilon, which there empties steps whose
    rewards are small.
    """

    p: PositiveShare = 0.9
    """Share of the total standard deviation, in (0, 1]."""
    on: Text = "outcome"

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        return by_mass(deviations(variances_P), self.p)

    @property
    def share(self) -> float:
        return self.p


@settings
class TopK(Ranked):
    """The k groups of largest variance. Constant groups never enter, so fewer than k may be kept."""

    k: Count = 8
    """Number of groups, at least 1."""
    on: Text = "outcome"

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        return by_rank(variances_P, self.k)


@settings
class MinP(Ranked):
    """Groups whose variance is at least p times the largest one. Constant groups never enter.

    Source: RAGEN-2's released code, which compares standard deviations: its p is the square root of this one.
    """

    p: PositiveShare = 0.1
    """Share of the largest variance, in (0, 1]."""
    on: Text = "outcome"

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        return by_largest(variances_P, self.p)


@settings
class Softmax(Ranked):
    """The smallest set of groups whose softmax(standard deviation / temperature) adds up to p.

    **Depends on the reward's unit.** Multiplying all rewards by ten is the same as dividing the temperature by ten.
    With 0/1 outcomes the deviations are so similar that nearly every group is kept, constant ones included. With
    rewards around ten only a few are. It is here to reproduce published runs. Use `TopP` otherwise.

    Source: the main-table scripts of RAGEN-2's released code, which call it top-p.
    """

    p: PositiveShare = 0.9
    """Share of the softmax mass, in (0, 1]."""
    temperature: Annotated[float, Interval(gt=0, le=LARGEST)] = 1.0
    """Temperature in units of the values. 1 as published."""
    include_constant: bool = True
    """Constant groups compete for the mass too, as in the published main table (its other studies leave them out)."""
    on: Text = "outcome"

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        deviations_P = deviations(variances_P)
        # The largest deviation is taken out of every exponent, so that none overflows.
        largest = max((deviation for deviation in deviations_P if deviation is not None), default=0.0)
        return by_mass(
            deviations_P,
            self.p,
            mass=lambda deviation: math.exp((deviation - largest) / self.temperature),
            constant_may_stay=self.include_constant,
        )


@settings
class SoftWeight(Ranked):
    """Every group that is not constant, weighted by its variance to a power. The weights average 1.

    A cut treats the last group kept like the first, and ignores the next one. Here there is no such edge. `power` 0 is
    `DropConstant`. Power .5 weighs by the standard deviation: with standardized advantages this gives the undivided
    advantage, times a constant of the step. Large powers keep only the groups of largest variance.

    In the loss a weight v multiplies all terms of a group's tokens, regularisers included, and is in the denominator as
    well. `token`: sum(v l) / sum(v n), a group counts by v times its tokens. `sequence` and `fixed`:
    sum(v mean(l)) / sum(v), a group counts by v times its trajectories. So only ratios of weights matter. The average
    of 1 makes them easy to read.
    """

    power: Annotated[float, Interval(ge=0, le=LARGEST)] = 1.0
    """Exponent of the variance, at least 0: 1 = proportional to the variance, 0.5 = to the standard deviation."""
    on: Text = "outcome"

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        candidates = positive(variances_P)
        largest = max(candidates, default=1.0)
        total = math.fsum(self._mass(variance, largest) for variance in candidates)
        verdicts = []
        for variance in variances_P:
            if variance is None:
                verdicts.append(Verdict(0.0, "unscored", None))
            elif variance == 0:
                verdicts.append(Verdict(0.0, "constant", 0.0))
            else:
                verdicts.append(Verdict(self._mass(variance, largest) * len(candidates) / total, "kept", variance))
        return verdicts

    def _mass(self, variance: float, largest: float) -> float:
        return max((variance / largest) ** self.power, LEAST)
