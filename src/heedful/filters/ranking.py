"""Ranking of groups: the variance of each group, the rules, ties, and checks of the knobs.

A group is ranked by one number: the variance of its members' values, or their standard deviation. `None` is a group
that could not be scored, exactly 0 a constant one. A rule (`by_mass`, `by_rank`, `by_largest`, `if_positive`) turns
these numbers into verdicts. A group that ties with the last group kept is kept too: numbers and masses closer than
`ROUNDING` count as equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

from heedful.diagnostics.statistics.group_statistics import sample_variance, scored_values
from heedful.protocols import Filter
from heedful.types import Verdict

ROUNDING = 1e-9
"""Relative. Numbers closer than this tie. Otherwise a change of the reward's unit could change which groups are
kept."""


def variances(values_PG: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Sample variance per group. `None` with fewer than two scored members."""
    return [sample_variance(values) if len(values) >= 2 else None for values in scored_values(values_PG)]


def deviations(variances_P: Sequence[float | None]) -> list[float | None]:
    """Standard deviation per group."""
    return [None if variance is None else math.sqrt(variance) for variance in variances_P]


def by_mass(
    numbers_P: Sequence[float | None],
    p: float,
    mass: Callable[[float], float] = float,
    constant_may_stay: bool = False,
) -> list[Verdict]:
    """Keep the smallest set of groups, largest numbers first, whose masses reach p of the total.

    `mass`: a group's mass, given its number. `constant_may_stay`: constant groups compete too.
    """
    candidates = [number for number in numbers_P if number is not None and (constant_may_stay or number > 0)]
    return _keep_from(
        _mass_edge(candidates, list(map(mass, candidates)), p), numbers_P, "below_mass", constant_may_stay
    )


def by_rank(numbers_P: Sequence[float | None], k: int) -> list[Verdict]:
    """Keep the k groups of the largest numbers."""
    ranked = sorted(positive(numbers_P), reverse=True)
    return _keep_from(ranked[min(k, len(ranked)) - 1] if ranked else 0.0, numbers_P, "below_rank")


def by_largest(numbers_P: Sequence[float | None], p: float) -> list[Verdict]:
    """Keep the groups whose number is at least p times the largest one."""
    return _keep_from(p * max(positive(numbers_P), default=0.0), numbers_P, "below_threshold")


def if_positive(numbers_P: Sequence[float | None]) -> list[Verdict]:
    """Keep every group that is not constant."""
    return _keep_from(0.0, numbers_P, "constant")


def positive(numbers_P: Sequence[float | None]) -> list[float]:
    """The numbers of the groups that are scored and not constant."""
    return [number for number in numbers_P if number is not None and number > 0]


def _mass_edge(numbers: Sequence[float], masses: Sequence[float], p: float) -> float:
    """The smallest number within the smallest set, largest numbers first, whose mass reaches p of the total."""
    if not numbers:
        return 0.0
    if p == 1:
        return min(numbers)
    ranked = sorted(zip(numbers, masses, strict=True), reverse=True)
    enough = p * math.fsum(masses) * (1 - ROUNDING)
    running = accumulate(mass for _, mass in ranked)
    return next((number for (number, _), total in zip(ranked, running, strict=True) if total >= enough), min(numbers))


def _keep_from(
    edge: float, numbers_P: Sequence[float | None], below: str, constant_may_stay: bool = False
) -> list[Verdict]:
    """Keep the groups whose number reaches `edge`, ties included. `below` is the reason of the others."""
    verdicts = []
    for number in numbers_P:
        if number is None:
            verdicts.append(Verdict(0.0, "unscored", None))
        elif number == 0 and not constant_may_stay:
            verdicts.append(Verdict(0.0, "constant", number))
        elif number >= edge * (1 - ROUNDING):  # a tie with the last group kept is kept
            verdicts.append(Verdict(1.0, "kept", number))
        else:
            verdicts.append(Verdict(0.0, "constant" if number == 0 else below, number))
    return verdicts


def check_same_on(filter: Filter, like: Filter, why: str) -> None:
    """Raise where a filter and the one inside it look at different values."""
    if like.on != filter.on:
        raise ValueError(
            f"{type(filter).__name__} {why} the filter `like`, so both must look at the same values: found "
            f"on={filter.on!r} and like.on={like.on!r}. Set both to the same name."
        )
