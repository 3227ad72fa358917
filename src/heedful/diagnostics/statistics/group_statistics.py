"""The values of a group that filters, advantages and metrics look at, and how they spread, in Python floats.

Promise: whether a group is constant is decided in one place, by its range; float32 noise never becomes a signal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from heedful.types import Group

TOLERANCE = 1e-6
"""Relative to the largest absolute value, but never below 1."""

LARGEST = 1e150
"""Squares of larger values overflow, and sums of the largest floats."""


def scored(values: Sequence[float | None]) -> list[float]:
    """The values that exist, as Python floats (NumPy scalars would keep float32): `None` and NaN left out, in order."""
    return [float(value) for value in values if value is not None and not math.isnan(value)]


def scored_values(values_PG: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """The values that exist, group by group."""
    return [scored(values_G) for values_G in values_PG]


def is_constant(values: Sequence[float]) -> bool:
    """True if the range of scored values is at most 1e-6 max(1, largest absolute value); so for fewer than two."""
    if len(values) < 2:
        return True
    return max(values) - min(values) <= TOLERANCE * max(1.0, max(abs(value) for value in values))


def sample_variance(values: Sequence[float]) -> float:
    """The unbiased variance, 1/(G - 1); exactly 0 for a constant group and for fewer than two values."""
    if is_constant(values):
        return 0.0
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


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
