"""Choosing prompts by how their members' values spread: rewards in, verdicts with reasons out.

Promise: a filter is a pure function of plain numbers and the generator it is given, independent of the order of groups
and members, so any trainer can call it in one line; no torch, no numpy. A constant group has a spread of exactly 0.

    verdicts = TopP(p=0.9)([[1, 0, 1, 0], [1, 1, 1, 1]], random.Random(0))

Verdict reasons: `kept`; `unscored` (fewer than two scored members, `None` and NaN left out); `constant`;
`below_mass`, `below_rank`, `below_threshold` by filter; `not_drawn` by the random control.

Groups whose spread equals that of the last group kept are kept too, so a filter may keep more than it was asked for;
binary outcomes make such ties frequent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated

from heedful.configuration import Choice
from heedful.protocols import Filter
from heedful.spread import is_constant, sample_variance, scored, values_on
from heedful.types import Verdict

__all__ = [
    "FILTERS",
    "DropConstant",
    "KeepAll",
    "MinP",
    "RandomSubset",
    "Softmax",
    "TopK",
    "TopP",
    "TopPStd",
    "is_constant",
    "values_on",
]

_ROUNDING = 1e-9
"""Relative: spreads and masses closer than this count as equal, or a change of unit could change what is kept."""

_LARGEST = 1e150
"""Squares of larger values overflow."""


@dataclass(frozen=True, slots=True)
class KeepAll:
    """No filter: every group is kept, constant ones too.

    A group of one is kept as well (actor-critic training needs no group); a larger one with fewer than two scored
    members is dropped as `unscored`, as everywhere.
    """

    on: str = "outcome"

    def __post_init__(self) -> None:
        _check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance; `None` for a group of one."""
        variances_P = _variances(values_PG)
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
        _check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance."""
        return _verdicts(_variances(values_PG), 0.0, "constant")


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
        _check_share(self, self.p)
        _check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance, 1/(G - 1)."""
        variances_P = _variances(values_PG)
        candidates = _positive(variances_P)
        return _verdicts(variances_P, _mass_edge(candidates, candidates, self.p), "below_mass")

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
        _check_share(self, self.p)
        _check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample standard deviation."""
        deviations_P = _deviations(values_PG)
        candidates = _positive(deviations_P)
        return _verdicts(deviations_P, _mass_edge(candidates, candidates, self.p), "below_mass")

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
        _check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance."""
        variances_P = _variances(values_PG)
        ranked = sorted(_positive(variances_P), reverse=True)
        edge = ranked[min(self.k, len(ranked)) - 1] if ranked else 0.0
        return _verdicts(variances_P, edge, "below_rank")


@dataclass(frozen=True, slots=True)
class MinP:
    """Groups whose variance is at least p times the largest one. Constant groups never enter.

    Source: RAGEN-2's released code, which compares standard deviations: its p is the square root of this one.
    """

    p: float = 0.1
    """Share of the largest variance, in (0, 1]."""
    on: str = "outcome"

    def __post_init__(self) -> None:
        _check_share(self, self.p)
        _check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample variance."""
        variances_P = _variances(values_PG)
        return _verdicts(variances_P, self.p * max(_positive(variances_P), default=0.0), "below_threshold")


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
        _check_share(self, self.p)
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(
                f"Softmax.temperature divides the standard deviations: expected a number > 0, found {self.temperature}."
            )
        _check_on(self)

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: the sample standard deviation."""
        deviations_P = _deviations(values_PG)
        candidates = [
            deviation
            for deviation in deviations_P
            if deviation is not None and (self.include_constant or deviation > 0)
        ]
        largest = max(candidates, default=0.0)
        weights = [math.exp((deviation - largest) / self.temperature) for deviation in candidates]
        edge = _mass_edge(candidates, weights, self.p)
        return _verdicts(deviations_P, edge, "below_mass", constant_may_stay=self.include_constant)


@dataclass(frozen=True, slots=True)
class RandomSubset:
    """Control: as many groups as another filter would keep, drawn uniformly among those it could have scored.

    Whatever a filter gains by training on fewer groups, this gains too; what is left of the difference is due to
    the choice. Constant groups are drawn like any other.
    """

    like: Annotated[Filter, Choice(FILTERS)] = field(default_factory=TopP)
    """Decides how many; its own choice is thrown away."""
    on: str = "outcome"

    def __post_init__(self) -> None:
        _check_on(self)
        if self.like.on != self.on:
            raise ValueError(
                f"RandomSubset keeps as many groups as the filter `like`, so both must look at the same values: "
                f"found on={self.on!r} and like.on={self.like.on!r}. Set both to the same name."
            )

    def __call__(self, values_PG: Sequence[Sequence[float | None]], rng: random.Random) -> list[Verdict]:
        """Spread: that of `like`."""
        verdicts = self.like(values_PG, rng)
        pool = [group for group, verdict in enumerate(verdicts) if verdict.reason != "unscored"]
        drawn = set(rng.sample(pool, sum(verdict.kept for verdict in verdicts)))
        return [
            verdict
            if verdict.reason == "unscored"
            else Verdict(float(group in drawn), "kept" if group in drawn else "not_drawn", verdict.spread)
            for group, verdict in enumerate(verdicts)
        ]


FILTERS: dict[str, type] = {
    "keep_all": KeepAll,
    "drop_constant": DropConstant,
    "top_p": TopP,
    "random_subset": RandomSubset,
    "top_k": TopK,
    "min_p": MinP,
    "top_p_std": TopPStd,
    "softmax": Softmax,
}
"""Every filter by the name that configurations and the command line use."""


def _variances(values_PG: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Sample variance per group; `None` with fewer than two scored members."""
    variances_P: list[float | None] = []
    for group, values_G in enumerate(values_PG):
        values = scored(values_G)
        if any(abs(value) > _LARGEST for value in values):
            raise ValueError(
                f"Filters need finite values of at most {_LARGEST:g} in size, but group {group} holds "
                f"{list(values_G)}; mark a trajectory that cannot be scored with None."
            )
        variances_P.append(sample_variance(values) if len(values) >= 2 else None)
    return variances_P


def _deviations(values_PG: Sequence[Sequence[float | None]]) -> list[float | None]:
    return [None if variance is None else math.sqrt(variance) for variance in _variances(values_PG)]


def _positive(spreads_P: Sequence[float | None]) -> list[float]:
    return [spread for spread in spreads_P if spread is not None and spread > 0]


def _mass_edge(spreads: Sequence[float], masses: Sequence[float], p: float) -> float:
    """The smallest spread within the smallest set, largest spreads first, whose mass reaches p of the total."""
    if not spreads:
        return 0.0
    if p == 1:
        return min(spreads)
    ranked = sorted(zip(spreads, masses, strict=True), reverse=True)
    enough = p * math.fsum(masses) * (1 - _ROUNDING)
    running = accumulate(mass for _, mass in ranked)
    return next((spread for (spread, _), total in zip(ranked, running, strict=True) if total >= enough), min(spreads))


def _verdicts(
    spreads_P: Sequence[float | None], edge: float, below: str, constant_may_stay: bool = False
) -> list[Verdict]:
    """Keeps the groups whose spread reaches the edge; `below` is the reason of those that do not."""
    verdicts = []
    for spread in spreads_P:
        if spread is None:
            verdicts.append(Verdict(0.0, "unscored", None))
        elif spread == 0 and not constant_may_stay:
            verdicts.append(Verdict(0.0, "constant", spread))
        elif spread >= edge * (1 - _ROUNDING):
            verdicts.append(Verdict(1.0, "kept", spread))
        else:
            verdicts.append(Verdict(0.0, "constant" if spread == 0 else below, spread))
    return verdicts


def _check_share(filter: Filter, p: float) -> None:
    if not 0 < p <= 1:
        raise ValueError(
            f"{type(filter).__name__}.p is a share: expected a number above 0 and at most 1, found {p}. "
            f"Use KeepAll to keep every group."
        )


def _check_on(filter: Filter) -> None:
    if not filter.on:
        raise ValueError(
            f"{type(filter).__name__}.on names the values that the filter looks at: expected `outcome`, `reward` or "
            f"the name of a reward component, found an empty name."
        )
