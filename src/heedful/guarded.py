"""Calls into code that is not ours: an environment of a user's own may raise anything at any time.

Promise: whatever an `Exception` a call raises, it comes back as a value; what stops the process itself (Ctrl-C, exit)
passes through. This is the one handler of the kind for environments: whoever plays one calls it through here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class RaisedElsewhere(Exception):
    """Something was raised in another process; the text names its type already, as `str(Raised(error))` gave it."""


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call raised in the place of an answer."""

    error: Exception

    def __str__(self) -> str:
        if isinstance(self.error, RaisedElsewhere):
            return str(self.error)
        return f"{type(self.error).__name__}: {self.error}"

    @property
    def place(self) -> str:
        """The innermost line of code that it came from, as `file.py, line 3`; empty if that is unknown."""
        frames = extract_tb(self.error.__traceback__)
        return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if len(frames) > 1 else ""


@dataclass(frozen=True, slots=True)
class Answered(Generic[Answer]):
    """What a call returned."""

    value: Answer


def guarded_call(call: Callable[[], Answer]) -> Answered[Answer] | Raised:
    """Call foreign code; what it raises is an answer like another."""
    try:
        return Answered(call())
    except Exception as error:  # foreign code: whatever it raises belongs to whoever asked, and to nobody else
        return Raised(error)
