"""Environments whose seeds all draw the same start state.

A warning says so once. The environment can still be played.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

SEEDS_LOOKED_AT = 64
"""The number of seeds drawn to find out whether there is more than one start state."""

ONE_START = "one start state"
"""Tag of the tasks of an environment that has no more."""


def has_one_start(what: str, start_state: Callable[[int], str]) -> bool:
    """Whether the first seeds all draw one start state. If so, warns. `what` is played. Slow where a start is slow."""
    first = start_state(0)
    if any(start_state(seed) != first for seed in range(1, SEEDS_LOOKED_AT)):
        return False
    warnings.warn(
        f"All seeds of {what} draw one start state, so in the first turn there is nothing that a thought could depend "
        "on, and the information metrics of that turn are null. Every seed counts as a task of its own: only noise "
        "tells them apart, and val and test are no other tasks than train.",
        stacklevel=3,
    )
    return True
