"""What the operations of a chat template cost, and the budget that pays for them.

A price is at least what an operation makes or reads, and it is paid before the operation begins. What could take far
longer than its size says is refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from types import GeneratorType, MethodType
from typing import Any, cast

from jinja2 import TemplateError
from jinja2.utils import Namespace

STEPS = 300_000
"""Passes of loops and macros in one rendering. A long conversation needs about ten per message."""
SIZE = 50_000_000
"""Characters that may be made in one rendering, beside a hundred times the size of the messages."""
ITEM = 50
"""Characters that an item of a list is counted as: it takes as long to visit."""
SECONDS = 5.0
"""CPU time of one rendering."""

_LARGE = 10_000
"""Characters whose making may take a while."""
LONGEST_NUMBER = 10_000
"""Bits of a whole number that is calculated with. To divide takes the square of its length, in one step."""
_MOST_DECIMALS = 300
"""Decimals of a rounded number. A float has no more."""
_LONGEST_SOUGHT = 64
"""Characters of a text that is sought from the end or stripped. A longer one is paid for at every place."""
_CODECS = {"utf-8", "utf8", "ascii", "latin-1", "strict", "ignore", "replace"}
"""Encodings, and what they do with errors. Others may take the square of the length."""
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
WIDTH = re.compile(r"%(?:\([^()]*\))?[^a-zA-Z%(]*(\d{4}|\*)|%\([^()]*\(")
"""A width, or the key of a value that could hide one."""
FIELD = re.compile(r"\{[^{}]*(\d{4}|\{)")

_MAKES_BY_NUMBER = {"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "to_bytes", "batch", "slice"}
"""Filters and methods whose number decides how much they make."""
_SEEKS = {"rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip", "trim"}
"""Filters and methods that compare a text anew at every place."""


class TooExpensive(TemplateError):
    """A template that asks for more than its budget."""


class Budget:
    __slots__ = ("deadline", "size", "steps")

    def __init__(self, given: int) -> None:
        self.steps, self.size = STEPS, SIZE + 100 * given
        self.deadline = time.thread_time() + SECONDS

    def pay(self, size: int, steps: int = 0) -> None:
        self.size -= size
        self.steps -= steps
        slow = (
            bool(steps or size > _LARGE) and time.thread_time() > self.deadline
        )  # asking for the time takes some, too
        if self.size < 0 or self.steps < 0 or slow:
            raise TooExpensive(
                f"it takes more than {STEPS:,} steps, {SIZE:,} characters or {SECONDS:g} seconds for one conversation"
            )


BUDGET: ContextVar[Budget | None] = ContextVar("budget", default=None)
"""`None` in other threads, which may render at the same time as `render_chat`."""


def pay(size: int, steps: int = 0) -> None:
    budget = BUDGET.get()
    if budget is not None:
        budget.pay(size, steps)


def inside_of(value: Any) -> Iterable[Any] | None:
    """What is written when the value is written. `None` for what holds nothing."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | AbstractSet | type({}.values())):
        return cast(Iterable[Any], value)
    if isinstance(value, Namespace):
        return [object.__getattribute__(value, "_Namespace__attrs")]
    return [value.__self__] if isinstance(value, MethodType) else None


def weight(value: Any) -> int:
    """Characters and items of a value. What it holds twice counts twice, since it is written twice."""
    if isinstance(value, str | bytes):
        return 1 + len(value)
    if isinstance(value, int):
        return 1 + value.bit_length() // 8
    budget = BUDGET.get()
    most = SIZE if budget is None else budget.size
    total, open_values = 0, [value]
    while open_values and total <= most:
        found = open_values.pop()
        inside = None if isinstance(found, str | bytes | int) else inside_of(found)
        if inside is None:
            total += weight(found) if isinstance(found, str | bytes | int) else 1
            continue
        inside = list(inside)
        total += ITEM * (1 + len(inside))
        if total <= most:
            open_values += inside
    return total


def product(left: Any, right: Any) -> int:
    for several, number in ((left, right), (right, left)):
        if isinstance(several, str | bytes | list | tuple) and isinstance(number, int):
            return weight(several) * max(0, number)
    return weight(left) + weight(right)


def made_by(name: str, owner: Any, args: Sequence[Any], named: Mapping[str, Any]) -> int:
    """At most how much a method or a filter makes of `owner`, beside its size."""
    values = (*args, *named.values())
    numbers = [abs(value) for value in values if isinstance(value, int)]
    if name == "round" and max(numbers, default=0) > _MOST_DECIMALS:
        raise TooExpensive(f"it rounds to more than {_MOST_DECIMALS} decimals")
    if name == "tojson" and values:
        texts = [text for value in values for text in (value if isinstance(value, list | tuple) else [value])]
        return max([*numbers, *map(weight, texts)]) * weight(owner)
    if name in _MAKES_BY_NUMBER:
        lines = 1 + (sum(map(owner.count, _LINE_ENDS + "\t")) if isinstance(owner, str) else 0)
        return max(numbers, default=0) * lines + lines * sum(map(weight, values))
    if name in _SEEKS:
        sought = max((len(value) for value in values if isinstance(value, str | bytes)), default=0)
        return len(owner) * sought if sought > _LONGEST_SOUGHT and isinstance(owner, str | bytes) else 0
    if name in ("replace", "translate") and isinstance(owner, str | bytes):
        return (1 + len(owner)) * max(map(weight, values), default=0) if _grows(owner, values) else 0
    if name == "join":
        items, between = (
            (values[0], owner) if values and isinstance(owner, str) else (owner, values[0] if values else "")
        )
        return length_of(items) * weight(between)
    return length_of(owner) * weight(owner) if name == "sum" and values else 0


def _grows(owner: Any, values: Sequence[Any]) -> bool:
    """Whether a replacement can make a text longer than a few times its length."""
    if len(values) >= 2 and isinstance(values[0], type(owner)) and isinstance(values[1], type(owner)):
        return (owner.count(values[0])) * len(values[1]) > 4 * len(owner) + 64
    return True


def length_of(value: Any) -> int:
    if isinstance(value, list | tuple | dict | set | frozenset | range):
        return ITEM * len(value)
    return len(value) if isinstance(value, str | bytes) else 1


def listed(value: Any) -> Any:
    """A generator as a list, so that it can be counted. Each item is a step."""
    if not isinstance(value, GeneratorType):
        return value
    items = []
    for item in value:
        pay(ITEM, 1)
        items.append(item)
    return items


def formatted(text: str | bytes, values: Any) -> int:
    """At most what a format makes. Named values may be written more than once."""
    signs = text.count("%") if isinstance(text, str) else text.count(b"%")
    places = signs if isinstance(values, dict) else 1
    return len(text) + places * weight(values)


def refuse_long_numbers(values: Iterable[Any]) -> None:
    if any(isinstance(value, int) and value.bit_length() > LONGEST_NUMBER for value in values):
        raise TooExpensive(f"it calculates with a number of more than {LONGEST_NUMBER:,} bits")


def refuse_codecs(values: Iterable[Any]) -> None:
    strange = [value for value in values if isinstance(value, str) and value.lower() not in _CODECS]
    if strange:
        raise TooExpensive(f"it encodes text as {strange[0][:40]!r}")


def refuse_widths(text: str | bytes, pattern: re.Pattern[str]) -> None:
    if pattern.search(text if isinstance(text, str) else text.decode("latin-1")):
        raise TooExpensive("it formats a value with a width of a thousand or more")
