"""What all filters share: variances of groups, edges between what is kept and what is not, checks of knobs.

Promise: plain Python floats; `None` is a group that could not be scored, exactly 0 a constant one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from heedful.protocols import Filter
from heedful.statistics.group_statistics import sample_variance, scored
from heedful.types import Verdict

ROUNDING = 1e-9
"""Relative: spreads and masses closer than this count as equal, or a change of unit could change what is kept."""

LARGEST = 1e150
"""Squares of larger values overflow."""


def scored_values(values_PG: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """The values that exist, group by group. Raises ValueError for infinite ones, naming the group."""
    scored_PG = []
    for group, values_G in enumerate(values_PG):
        values = scored(values_G)
        if any(abs(value) > LARGEST for value in values):
            raise ValueError(
                f"Filters need finite values of at most {LARGEST:g} in size, but group {group} holds "
                f"{list(values_G)}; mark a trajectory that cannot be scored with None."
            )
        scored_PG.append(values)
    return scored_PG


def variances(values_PG: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Sample variance per group; `None` with fewer than two scored members."""
    return [sample_variance(values) if len(values) >= 2 else None for values in scored_values(values_PG)]


def deviations(variances_P: Sequence[float | None]) -> list[float | None]:
    return [None if variance is None else math.sqrt(variance) for variance in variances_P]


def positive(spreads_P: Sequence[float | None]) -> list[float]:
    return [spread for spread in spreads_P if spread is not None and spread > 0]


def mass_edge(spreads: Sequence[float], masses: Sequence[float], p: float) -> float:
    """The smallest spread within the smallest set, largest spreads first, whose mass reaches p of the total."""
    if not spreads:
        return 0.0
    if p == 1:
        return min(spreads)
    ranked = sorted(zip(spreads, masses, strict=True), reverse=True)
    enough = p * math.fsum(masses) * (1 - ROUNDING)
    running = accumulate(mass for _, mass in ranked)
    return next((spread for (spread, _), total in zip(ranked, running, strict=True) if total >= enough), min(spreads))


def verdicts_from(
    spreads_P: Sequence[float | None], edge: float, below: str, constant_may_stay: bool = False
) -> list[Verdict]:
    """Keeps the groups whose spread reaches the edge; `below` is the reason of those that do not."""
    verdicts = []
    for spread in spreads_P:
        if spread is None:
            verdicts.append(Verdict(0.0, "unscored", None))
        elif spread == 0 and not constant_may_stay:
            verdicts.append(Verdict(0.0, "constant", spread))
        elif spread >= edge * (1 - ROUNDING):
            verdicts.append(Verdict(1.0, "kept", spread))
        else:
            verdicts.append(Verdict(0.0, "constant" if spread == 0 else below, spread))
    return verdicts


def check_share(filter: Filter, p: float) -> None:
    if not 0 < p <= 1:
        raise ValueError(
            f"{type(filter).__name__}.p is a share: expected a number above 0 and at most 1, found {p}. "
            f"Use KeepAll to keep every group."
        )


def check_on(filter: Filter) -> None:
    if not filter.on:
        raise ValueError(
            f"{type(filter).__name__}.on names the values that the filter looks at: expected `outcome`, `reward` or "
            f"the name of a reward component, found an empty name."
        )


def check_same_on(filter: Filter, like: Filter, why: str) -> None:
    """Raise where a filter and the one inside it look at different values."""
    if like.on != filter.on:
        raise ValueError(
            f"{type(filter).__name__} {why} the filter `like`, so both must look at the same values: found "
            f"on={filter.on!r} and like.on={like.on!r}. Set both to the same name."
        )
