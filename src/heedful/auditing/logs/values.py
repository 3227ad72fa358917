"""Values of a log, checked and converted. A value that does not fit raises `Misfit`."""

from __future__ import annotations

import hashlib
import math
import reprlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from heedful.auditing.logs.records import Misfit, Row
from heedful.boundary import listed
from heedful.boundary.limits import LARGEST_REWARD
from heedful.storage import MOST_STEP

Converted = TypeVar("Converted")


MOST_NAMES = 20
_INT64 = 2**63
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: object) -> str:
    """The type and the beginning of a value, for a sentence."""
    return f"{type(value).__name__} {_SHORT.repr(value)}"


def number(value: object, what: str) -> float | None:
    """A finite number or a truth value as float; `None` and NaN are missing. Raises `Misfit` for anything else.

    An infinity is no missing value: dropping it would change a mean in silence. Numbers larger than any reward are
    refused as well, since the squares of variances overflow.
    """
    if value is None:
        return None
    if not isinstance(value, bool | int | float):
        raise Misfit(f"a number as `{what}`", shown(value))
    if isinstance(value, float) and math.isnan(value):
        return None
    if abs(value) > LARGEST_REWARD:
        raise Misfit(f"a number from -{LARGEST_REWARD:g} to {LARGEST_REWARD:g} as `{what}`", shown(value))
    return float(value)


def outcome_of(value: object, what: str) -> float | None:
    """Success as 0, 1 or partial credit between; `None` where it is missing."""
    outcome = number(value, what)
    if outcome is not None and not 0 <= outcome <= 1:
        raise Misfit(f"`{what}` from 0 to 1, 1 = success", _SHORT.repr(value))
    return outcome


def text_of(value: object, what: str) -> str:
    """A text that every file can hold: lone surrogates become backslash escapes."""
    if not isinstance(value, str):
        raise Misfit(f"text as `{what}`", shown(value))
    if value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def mapping(value: object, what: str) -> dict[str, Any]:
    """A JSON object; empty where it is missing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Misfit(f"an object as `{what}`", shown(value))
    return value


def integer(value: object, what: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misfit(f"a whole number as `{what}`", shown(value))
    if not -_INT64 <= value < _INT64:
        raise Misfit(f"a whole number of at most 64 bits as `{what}`", shown(value))
    return value


def key_of(value: object, what: str) -> str | None:
    """What names a group: text or a whole number, where 3.0 is 3. `None` and NaN are missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise Misfit(f"text or a whole number as `{what}`", shown(value))
    return text_of(str(value), what)


def step_number(value: object, what: str) -> int:
    """A step, as `metrics.jsonl` takes it."""
    step = integer(value, what)
    if not 0 <= step <= MOST_STEP:
        raise Misfit(f"a step from 0 to {MOST_STEP:,} as `{what}`", shown(value))
    return step


def digest(*texts: str) -> str:
    """16 hexadecimal digits that name these texts."""
    state = hashlib.blake2b(digest_size=8)
    for text in texts:
        state.update(text.encode("utf-8", "backslashreplace") + b"\0")
    return state.hexdigest()


def names(words: Iterable[str]) -> str:
    return listed(words)


def fitting(convert: Callable[[Row], Converted], rows: Iterable[Row]) -> list[Converted]:
    """What `convert` makes of the rows that fit."""
    found = []
    for row in rows:
        with suppress(Misfit):
            found.append(convert(row))
    return found
