"""The values of a group that filters, advantages and metrics look at, and how they spread, in Python floats.

Promise: whether a group is constant is decided in one place, by its range; float32 noise never becomes a signal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from heedful.types import Group

TOLERANCE = 1e-6
"""Relative to the largest absolute value, but never below 1."""

LARGEST = 1e150
"""Squares of larger values overflow, and sums of the largest floats."""


@contextmanager
def within_floats() -> Iterator[None]:
    """Raise ValueError where Python's arithmetic overflows: for a large whole number, and for a large square."""
    try:
        yield
    except OverflowError as error:
        raise ValueError(
            f"Expected values of at most {LARGEST:g} in size, found one that no float holds, or whose square overflows."
        ) from error


@within_floats()
def scored(values: Sequence[float | None]) -> list[float]:
    """The values that exist, as Python floats (NumPy scalars would keep float32): `None` and NaN left out, in order.

    Raises ValueError for a whole number that no float holds.
    """
    return [float(value) for value in values if value is not None and not math.isnan(value)]


def scored_values(values_PG: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """The values that exist, group by group. Raises ValueError for infinite ones, naming the group."""
    scored_PG = [scored(values_G) for values_G in values_PG]
    for group, values in enumerate(scored_PG):
        if not all(map(is_measurable, values)):
            raise ValueError(
                f"Expected finite values of at most {LARGEST:g} in size, but group {group} holds "
                f"{list(values_PG[group])}; mark a trajectory that cannot be scored with None."
            )
    return scored_PG


def is_measurable(value: float) -> bool:
    """Whether means and squares of such values are finite."""
    try:
        return abs(float(value)) <= LARGEST  # NumPy would cast the limit to the type of the value
    except OverflowError:
        return False


@within_floats()
def is_constant(values: Sequence[float]) -> bool:
    """True if the range of scored values is at most 1e-6 max(1, largest absolute value); so for fewer than two.

    Raises ValueError for NaN and infinite values, and for a whole number that no float holds.
    """
    if not all(map(math.isfinite, values)):
        found = next(value for value in values if not math.isfinite(value))
        raise ValueError(f"Expected finite values, found {found}. Leave out values that are missing, as `scored` does.")
    if len(values) < 2:
        return True
    return max(values) - min(values) <= TOLERANCE * max(1.0, max(abs(value) for value in values))


@within_floats()
def sample_variance(values: Sequence[float]) -> float:
    """The unbiased variance, 1/(G - 1); exactly 0 for a constant group and for fewer than two values.

    Raises ValueError for NaN and infinite values, and for a value whose square no float holds.
    """
    if is_constant(values):
        return 0.0
    mean = fmean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    if squares == math.inf:
        raise OverflowError("squares of NumPy's numbers overflow without an error")
    return squares / (len(values) - 1)


def values_on(groups: Sequence[Group], on: str) -> list[list[float | None]]:
    """What a filter with this `on` looks at: one value per member of each group.

    `outcome`, `reward`, or else the name of a reward component. A component that no turn of any trajectory reports is
    missing (`None`), not 0: a misspelt name drops every group as `unscored`, not as `constant`.
    """
    if on == "outcome":
        return [[trajectory.outcome for trajectory in group.trajectories] for group in groups]
    if on == "reward":
        return [[trajectory.reward for trajectory in group.trajectories] for group in groups]
    reported = any(
        on in turn.rewards for group in groups for trajectory in group.trajectories for turn in trajectory.turns
    )
    return [[trajectory.component(on) if reported else None for trajectory in group.trajectories] for group in groups]
