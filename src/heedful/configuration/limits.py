"""One sentence for every number that is too small or too large."""

from __future__ import annotations

MOST_AT_ONCE = 1024
"""Threads, or processes, that a command starts. All are started, and a system has room for a few thousand."""


def refuse_below(config: object, **least: int) -> None:
    """Raise ValueError for the first field of `config` that is below its least value; a field that is None is not."""
    for name, value in least.items():
        found = getattr(config, name)
        if found is not None and found < value:
            raise ValueError(f"{name} must be at least {value}, found {found}")


def refuse_above(config: object, **most: int) -> None:
    """Raise ValueError for the first field of `config` that is above its most; a field that is None is not."""
    for name, value in most.items():
        found = getattr(config, name)
        if found is not None and found > value:
            raise ValueError(f"{name} must be at most {value}, found {found}")
