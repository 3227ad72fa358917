"""Knobs that environments share, and the check of a range that depends on another knob."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

Instructions = Literal["full", "brief"]
Thoughts = Literal["terse", "english", "board"]

IN_ENGLISH = ("bandit", "chain", "countdown", "frozen_lake", "math")
"""The built-in environments whose demonstrations can think in English."""

Turns = Annotated[int, Interval(ge=1, le=10_000)]
"""Most turns of an episode. Files of other people hold configurations: one number must not take all time and memory."""


def check_range(env: str, knob: str, value: int, least: int, most: int | None = None) -> None:
    """Raise ValueError unless `value` is in [least, most]: for bounds that depend on another knob."""
    if value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ValueError(f"{env}: {knob} must be {wanted}, but is {value}.")
