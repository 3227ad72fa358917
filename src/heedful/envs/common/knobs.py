"""Range checks that environments share.

The error names the environment, the knob, the value and the range.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal, get_args

from heedful.boundary import MOST_SECONDS
from heedful.boundary.limits import LARGEST_REWARD
from heedful.guarded import in_short

Instructions = Literal["full", "brief"]
Thoughts = Literal["terse", "english", "board"]

IN_ENGLISH = ("bandit", "chain", "countdown", "frozen_lake", "math")
"""The built-in environments whose demonstrations can think in English."""

MOST_TURNS = 10_000
"""Most turns of an episode."""
# Configurations come in files of other people. Without an upper end, one number can take all time and memory.


def check_share(env: str, knob: str, value: float) -> None:
    """Raise ValueError unless `value` is in [0, 1]."""
    if not (isinstance(value, Real) and 0.0 <= value <= 1.0):
        raise ValueError(f"{env}: {knob} must lie in [0, 1], but is {in_short(value)}.")


def check_range(env: str, knob: str, value: int, least: int, most: int | None = None) -> None:
    """Raise ValueError unless `value` is a whole number in [least, most]."""
    whole = isinstance(value, Integral)
    if not whole or value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"between {least} and {most}"
        kind = "" if whole else "a whole number "
        raise ValueError(f"{env}: {knob} must be {kind}{wanted}, but is {in_short(value)}.")


def check_seconds(env: str, knob: str, value: float) -> None:
    """Raise ValueError unless `value` is a time that the clocks of the system can wait for."""
    if not (isinstance(value, Real) and 0.0 < value <= MOST_SECONDS):
        raise ValueError(
            f"{env}: {knob} must be seconds above 0 and at most {MOST_SECONDS:,}, but is {in_short(value)}."
        )


def check_penalty(env: str, value: float) -> None:
    """Raise unless the format penalty is a number of at least 0 (it is subtracted) that a reward may be."""
    if not (isinstance(value, Real) and 0.0 <= value <= LARGEST_REWARD):
        raise ValueError(
            f"{env}: format_penalty must be at least 0 (it is subtracted) and at most {LARGEST_REWARD:g}, but is "
            f"{in_short(value)}."
        )


def check_choice(env: str, knob: str, value: str, known: Any) -> None:
    """Raise unless `value` is among the texts of the Literal `known`."""
    *others, last = (f"'{each}'" for each in get_args(known))
    if value not in get_args(known):
        raise ValueError(f"{env}: {knob} must be {', '.join(others)} or {last}, but is {in_short(value)}.")
