"""What the trainer, the supervisor and the programs send each other. Nothing here executes what it reads.

Values between two programs are plain data in JSON, with tags for what JSON lacks (tuples, sets, dictionaries with any
keys, bytes, ranges, infinite numbers). A message is read with limits, and by content only: no pickle, no `repr`.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["script", "function", "candidate", "checker"]

STDIN, STDOUT, STDERR, CODE, RESULT, PEER = range(6)
"""Descriptors of a program. `PEER` is there for a candidate and its checker only, and connects the two."""

UNCAUGHT = 120
"""Exit status of a program that ended with an uncaught exception."""

NOT_STARTED = 121
"""Exit status of a program that could not be locked in, and therefore never ran. One that ran may have it, too."""

STARTED = b"!"
"""The first byte on the result descriptor, once a program is locked in. It then cannot claim that it never ran."""

_LONG = 10_000
"""Bits of a whole number from which on it is written in base 16. Python reads no number of so many decimal digits."""

_DEEPEST = 200
"""Nested containers in one value."""

_PLAIN = (bool, str, int, float, list, tuple, dict, set, frozenset, complex, bytes, bytearray, range, deque)

_MOST_ALIKE = 1000
"""Different items of one hash in one set or dictionary. Each is compared with all before it."""


class NotPlain(ValueError):
    """A value that cannot be sent: an object, a cycle, or containers nested too deeply."""


@dataclass(frozen=True, slots=True)
class Request:
    """One program for the supervisor. Code and input travel as descriptors, which the supervisor never reads."""

    kind: Kind
    cpu: int
    """Seconds of CPU time."""
    memory: int
    """Bytes of address space."""
    entry: str = ""
    """The function to call. Not for scripts."""


def to_plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON data with tags. Raises NotPlain.

    A value of a subclass (a named tuple, a counter, a member of an IntEnum) is read as what its builtin type holds,
    past the methods of its class. A number of numpy is a number.
    """
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "ndim", 1):
        value = value.item()
    kind = type(value) if type(value) in _PLAIN else next((each for each in _PLAIN if isinstance(value, each)), None)
    if value is None or kind in (bool, str) or (kind is int and int.bit_length(value) < _LONG):
        return value
    if kind is int:
        return {"int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if depth > _DEEPEST:
        raise NotPlain(f"a value with more than {_DEEPEST} nested containers")
    if kind is list:
        return [to_plain(each, depth + 1) for each in list.__iter__(value)]
    if kind in (tuple, set, frozenset, deque):
        return {kind.__name__: [to_plain(each, depth + 1) for each in kind.__iter__(value)]}
    if kind is range:
        return {"range": [to_plain(each) for each in (value.start, value.stop, value.step)]}
    if kind is dict:
        return {"dict": [[to_plain(each, depth + 1) for each in pair] for pair in dict.items(value)]}
    if kind is complex:
        return {"complex": [to_plain(value.real), to_plain(value.imag)]}
    if kind in (bytes, bytearray):
        return {"bytes": kind.hex(value)}
    raise NotPlain(f"a value of type {type(value).__name__}, which is not plain data")


def from_plain(data: Any) -> Any:
    """The value that `to_plain` described. Raises NotPlain for anything else."""
    if type(data) is list:
        return [from_plain(each) for each in data]
    if type(data) is not dict:
        return data
    if len(data) != 1:
        raise NotPlain("a tagged value with other than one tag")
    tag = next(iter(data))
    try:
        return _TAGS[tag](data[tag])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise NotPlain(f"a value that cannot be read: {type(error).__name__}") from None


def _hashed(items: list[Any]) -> list[Any]:
    """Items that a set or a dictionary can hold in a short time. A program can choose thousands of one hash.

    Raises TypeError for what has no hash, and NotPlain.
    """
    counted = Counter(map(hash, items))
    if counted and max(counted.values()) > _MOST_ALIKE:
        raise NotPlain(f"more than {_MOST_ALIKE:,} items of one hash")
    return items


_TAGS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": lambda text: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text],
    "tuple": lambda items: tuple(map(from_plain, items)),
    "deque": lambda items: deque(map(from_plain, items)),
    "range": lambda ends: range(*map(from_plain, ends)),
    "set": lambda items: set(_hashed([from_plain(item) for item in items])),
    "frozenset": lambda items: frozenset(_hashed([from_plain(item) for item in items])),
    "dict": lambda pairs: dict(
        zip(_hashed([from_plain(key) for key, _ in pairs]), [from_plain(value) for _, value in pairs], strict=True)
    ),
    "complex": lambda parts: complex(from_plain(parts[0]), from_plain(parts[1])),
    "bytes": bytes.fromhex,
}


def encode_value(value: Any) -> bytes:
    """One value on one line. Raises NotPlain."""
    return json.dumps(to_plain(value)).encode() + b"\n"


def decode_value(line: bytes) -> Any:
    """The value on a line. Raises NotPlain, whatever the line is."""
    try:
        return from_plain(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise NotPlain(f"a line that holds no value: {str(error)[:80]}") from None
