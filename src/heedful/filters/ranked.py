"""Filters that rank groups by the spread of their values, and the two that only ask whether there is any.

Promise: what is kept rests on one number per group. `rank` takes these numbers from anywhere (an estimate of the
variance, say, in place of the sample's); `__call__` takes the values and ranks by their sample variance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from heedful.filters.ranking import (
    check_on,
    check_share,
    deviations,
    mass_edge,
    positive,
    variances,
    verdicts_from,
)
from heedful.statistics.group_statistics import scored
from heedful.types import Verdict


class Ranking(Protocol):
    """A filter that asks for nothing but one variance per group."""

    @property
    def on(self) -> str: ...

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]: ...

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        """The verdicts for these variances: `None` is an unscored group, exactly 0 a constant one."""
        ...


@dataclass(frozen=True, slots=True)
class KeepAll:
    """No filter: every group is kept, constant ones too.

    A group of one is kept as well (actor-critic training needs no group); a larger one with fewer than two scored
    members is dropped as `unscored`, as everywhere.
    """

    on: str = "outcome"

    def __post_init__(self) -> None:
        check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance; `None` for a group of one."""
        variances_P = variances(values_PG)
        return [
            Verdict(1.0, "kept", variance)
            if variance is not None or (len(values_G) == 1 and scored(values_G))
            else Verdict(0.0, "unscored", None)
            for values_G, variance in zip(values_PG, variances_P, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class DropConstant:
    """Keeps every group that is not constant: the filter half of DAPO's dynamic sampling (arXiv:2503.14476)."""

    on: str = "outcome"

    def __post_init__(self) -> None:
        check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance."""
        return verdicts_from(variances(values_PG), 0.0, "constant")


@dataclass(frozen=True, slots=True)
class TopP:
    """The smallest set of groups whose sample variances add up to a share p of the total.

    Constant groups never enter; p = 1 keeps every other group. When all groups are constant nothing is kept. What is
    kept does not change when all values are multiplied by a constant, as long as no group's range falls under the
    tolerance of `is_constant`.

    Source: RAGEN-2 (arXiv:2604.06268), the rule of its text. Its default code accumulates standard deviations
    (`TopPStd`, there with an absolute epsilon of 0.01), its main table a softmax over them (`Softmax`).
    """

    p: float = 0.9
    """Share of the total variance, in (0, 1]."""
    on: str = "outcome"

    def __post_init__(self) -> None:
        check_share(self, self.p)
        check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance, 1/(G - 1)."""
        return self.rank(variances(values_PG))

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        """The verdicts for these variances."""
        candidates = positive(variances_P)
        return verdicts_from(variances_P, mass_edge(candidates, candidates, self.p), "below_mass")

    @property
    def share(self) -> float:
        """What the loss scale `rho` multiplies by."""
        return self.p


@dataclass(frozen=True, slots=True)
class TopPStd:
    """`TopP` with standard deviations instead of variances as masses: flatter, so it keeps more groups at equal p.

    Source: the default of RAGEN-2's released code. Deviation: no absolute epsilon, which there empties steps whose
    rewards are small.
    """

    p: float = 0.9
    """Share of the total standard deviation, in (0, 1]."""
    on: str = "outcome"

    def __post_init__(self) -> None:
        check_share(self, self.p)
        check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample standard deviation."""
        return self.rank(variances(values_PG))

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        """The verdicts for these variances."""
        deviations_P = deviations(variances_P)
        candidates = positive(deviations_P)
        return verdicts_from(deviations_P, mass_edge(candidates, candidates, self.p), "below_mass")

    @property
    def share(self) -> float:
        """What the loss scale `rho` multiplies by."""
        return self.p


@dataclass(frozen=True, slots=True)
class TopK:
    """The k groups of largest variance. Constant groups never enter, so fewer than k may be kept."""

    k: int = 8
    """Number of groups, at least 1."""
    on: str = "outcome"

    def __post_init__(self) -> None:
        if not (isinstance(self.k, int) and self.k >= 1):
            raise ValueError(f"TopK.k is the number of groups to keep: expected a whole number >= 1, found {self.k!r}.")
        check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance."""
        return self.rank(variances(values_PG))

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        """The verdicts for these variances."""
        ranked = sorted(positive(variances_P), reverse=True)
        edge = ranked[min(self.k, len(ranked)) - 1] if ranked else 0.0
        return verdicts_from(variances_P, edge, "below_rank")


@dataclass(frozen=True, slots=True)
class MinP:
    """Groups whose variance is at least p times the largest one. Constant groups never enter.

    Source: RAGEN-2's released code, which compares standard deviations: its p is the square root of this one.
    """

    p: float = 0.1
    """Share of the largest variance, in (0, 1]."""
    on: str = "outcome"

    def __post_init__(self) -> None:
        check_share(self, self.p)
        check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance."""
        return self.rank(variances(values_PG))

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        """The verdicts for these variances."""
        return verdicts_from(variances_P, self.p * max(positive(variances_P), default=0.0), "below_threshold")


@dataclass(frozen=True, slots=True)
class Softmax:
    """The smallest set of groups whose softmax(standard deviation / temperature) adds up to p.

    **Depends on the reward's unit.** Multiplying all rewards by ten is the same as dividing the temperature by ten:
    with 0/1 outcomes the deviations lie so close together that nearly every group is kept, constant ones included;
    with rewards around ten only a few are. It is here to reproduce published runs; use `TopP` otherwise.

    Source: the main-table scripts of RAGEN-2's released code, which call it top-p.
    """

    p: float = 0.9
    """Share of the softmax mass, in (0, 1]."""
    temperature: float = 1.0
    """In units of the values; 1 as published."""
    include_constant: bool = True
    """Constant groups compete for the mass too, as in the published main table (its other studies leave them out)."""
    on: str = "outcome"

    def __post_init__(self) -> None:
        check_share(self, self.p)
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(
                f"Softmax.temperature divides the standard deviations: expected a number > 0, found {self.temperature}."
            )
        check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample standard deviation."""
        return self.rank(variances(values_PG))

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        """The verdicts for these variances."""
        deviations_P = deviations(variances_P)
        candidates = [
            deviation
            for deviation in deviations_P
            if deviation is not None and (self.include_constant or deviation > 0)
        ]
        largest = max(candidates, default=0.0)
        weights = [math.exp((deviation - largest) / self.temperature) for deviation in candidates]
        edge = mass_edge(candidates, weights, self.p)
        return verdicts_from(deviations_P, edge, "below_mass", constant_may_stay=self.include_constant)
