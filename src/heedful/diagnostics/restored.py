"""States of the measurements that are read from a checkpoint, where JSON may hold anything."""

from __future__ import annotations

import sys
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

State = TypeVar("State")

MOST_NATS = 1e100
"""Sums and squares of such numbers are finite."""


def typed(found: State, most: float | None = None) -> State:
    """`found`, a dataclass of numbers, texts, truth values and tuples of them.

    Raises:
        TypeError: a value is of another type than its field.
        ValueError: no float holds a number. With `most` a number is not finite, or its size is above `most`.
    """
    for name, hint in get_type_hints(type(found)).items():
        value = getattr(found, name)
        several = get_origin(hint) is tuple
        for each in value if several else [value]:
            _check(name, get_args(hint)[0] if several else hint, each, most)
    return found


def _check(name: str, hint: Any, value: object, most: float | None) -> None:
    allowed = hint | int if float in (hint, *get_args(hint)) else hint
    if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
        raise TypeError(f"`{name}` of type {type(value).__name__}")
    if not isinstance(value, int | float):
        return
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ValueError(f"`{name}` of {str(value)[:40]}, which no float holds")
    if most is not None and not abs(value) <= most:
        raise ValueError(f"`{name}` of {value}, expected a number of {most:g} at most")
