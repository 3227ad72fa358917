"""Values of a log, checked and converted once. A value that does not fit raises `Misfit`.

What is a number, a step, success, a truth value or the name of a group is decided here, for all formats.
"""

from __future__ import annotations

import hashlib
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from heedful.auditing.logs.records import Misfit, Row
from heedful.boundary.limits import LARGEST_REWARD
from heedful.storage import MOST_STEP

Converted = TypeVar("Converted")

_INT64 = 2**63
_TRUTHS = {"true": True, "false": False}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


class Fields(dict[str, Any]):
    """A row, or an object in it, whose columns are asked for by type. `None` and NaN are missing."""

    def __init__(self, row: Mapping[str, Any], within: str = "") -> None:
        super().__init__(row)
        self._within = within

    def number(self, name: str) -> float | None:
        """A finite number or a truth value, or missing."""
        return number(self.get(name), self._within + name)

    def outcome(self, name: str) -> float | None:
        """Success as 0, 1 or partial credit between, or missing. `True` and `False` may be text."""
        outcome = number(truth_of(self.get(name)), self._within + name)
        if outcome is not None and not 0 <= outcome <= 1:
            raise Misfit(f"`{self._within}{name}` from 0 to 1, 1 = success", _SHORT.repr(self[name]))
        return outcome

    def text(self, name: str) -> str:
        return text_of(self.get(name), self._within + name)

    def whole(self, name: str, missing: int | None = None) -> int:
        """A whole number of at most 64 bits. `missing`: what stands for none."""
        value = self.get(name)
        return missing if missing is not None and value is None else integer(value, self._within + name)

    def step(self, name: str) -> int | None:
        """A training step, or missing."""
        return None if self.get(name) is None else step_number(self[name], self._within + name)

    def key(self, name: str) -> str | None:
        """What names a group: text or a whole number, where 3.0 is 3; or missing."""
        value = self.get(name)
        if is_missing(value):
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise Misfit(f"text or a whole number as `{self._within}{name}`", shown(value))
        return text_of(str(value), name)

    def truth(self, name: str, missing: bool = False) -> bool:
        value = self.get(name)
        if value is None:
            return missing
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise Misfit(f"true or false as `{self._within}{name}`", shown(value))
        return bool(value)

    def inner(self, name: str) -> Fields:
        """A JSON object; empty where it is missing."""
        value = self.get(name)
        return Fields({}) if value is None else object_of(value, self._within + name)

    def listed(self, name: str) -> list[Any]:
        """A list; empty where it is missing."""
        value = self.get(name)
        if not isinstance(value, list | None):
            raise Misfit(f"a list as `{self._within}{name}`", type(value).__name__)
        return value or []

    def objects(self, name: str) -> list[Fields]:
        """A list of JSON objects; empty where it is missing."""
        return [object_of(value, name) for value in self.listed(name)]


def shown(value: object) -> str:
    """The type and the beginning of a value, for a sentence."""
    return f"{type(value).__name__} {_SHORT.repr(value)}"


def is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def truth_of(value: object) -> object:
    """A truth value that was written as text; anything else as it is."""
    return _TRUTHS.get(value.lower(), value) if isinstance(value, str) else value


def number(value: object, what: str) -> float | None:
    """A finite number or a truth value as float; `None` and NaN are missing. Raises `Misfit` for anything else.

    An infinity is no missing value: dropping it would change a mean in silence. Numbers larger than any reward are
    refused as well, since the squares of variances overflow.
    """
    if is_missing(value):
        return None
    if not isinstance(value, bool | int | float):
        raise Misfit(f"a number as `{what}`", shown(value))
    if abs(value) > LARGEST_REWARD:
        raise Misfit(f"a number from -{LARGEST_REWARD:g} to {LARGEST_REWARD:g} as `{what}`", shown(value))
    return float(value)


def text_of(value: object, what: str) -> str:
    """A text that every file can hold: lone surrogates become backslash escapes."""
    if not isinstance(value, str):
        raise Misfit(f"text as `{what}`", shown(value))
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def object_of(value: object, what: str) -> Fields:
    if not isinstance(value, dict):
        raise Misfit(f"an object as `{what}`", shown(value))
    return Fields(value, f"{what}.")


def integer(value: object, what: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misfit(f"a whole number as `{what}`", shown(value))
    if not -_INT64 <= value < _INT64:
        raise Misfit(f"a whole number of at most 64 bits as `{what}`", shown(value))
    return value


def step_number(value: object, what: str) -> int:
    """A step, as `metrics.jsonl` takes it. ms-swift writes it as text."""
    step = integer(int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 20 else value, what)
    if not 0 <= step <= MOST_STEP:
        raise Misfit(f"a step from 0 to {MOST_STEP:,} as `{what}`", shown(value))
    return step


def digest(*texts: str) -> str:
    """16 hexadecimal digits that name these texts."""
    state = hashlib.blake2b(digest_size=8)
    for text in texts:
        state.update(text.encode("utf-8", "backslashreplace") + b"\0")
    return state.hexdigest()


def fitting(convert: Callable[[Fields], Converted], rows: Iterable[Row]) -> list[Converted]:
    """What `convert` makes of the rows that fit."""
    found = []
    for row in rows:
        with suppress(Misfit):
            found.append(convert(Fields(row)))
    return found
