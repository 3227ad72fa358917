"""Calls into foreign code: an environment written by a user may raise any error at any time.

An `Exception` that a call raises is returned as a value. Ctrl-C and exit, which stop the process itself, pass through.
This is the only handler of this kind for environments. Every caller that plays an environment calls it through here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class RaisedElsewhere(Exception):
    """An error raised in another process. Its text already names the type, as `str(Raised(error))` gave it."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The error that a call raised instead of returning an answer."""

    error: Exception

    def __str__(self) -> str:
        if isinstance(self.error, RaisedElsewhere):
            return str(self.error)
        told = guarded_call(lambda: str(self.error))  # foreign code, too
        return f"{type(self.error).__name__}: {told.value if isinstance(told, Answered) else 'its text cannot be read'}"

    @property
    def place(self) -> str:
        """The innermost line of code that raised the error, as `file.py, line 3`. Empty if that is unknown."""
        frames = extract_tb(self.error.__traceback__)
        return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if len(frames) > 1 else ""


@dataclass(frozen=True, slots=True)
class Answered(Generic[Answer]):
    """The value that a call returned."""

    value: Answer


def guarded_call(call: Callable[[], Answer]) -> Answered[Answer] | Raised:
    """Call foreign code and return its answer, or the error that it raised."""
    try:
        return Answered(call())
    except Exception as error:  # foreign code: its errors concern its caller only
        return Raised(error)
