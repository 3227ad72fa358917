"""Calls into foreign code: an environment written by a user may raise any error at any time.

What a call raises is returned as a value, also what derives from BaseException alone, such as asyncio's CancelledError
and the SystemExit of `sys.exit()`: a run whose environment asks for its end would end with that code, 0 included.
Ctrl-C passes through, as does what heedful raises into a call to end it.
This is the only handler of this kind for environments. Every caller that plays an environment calls it through here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class PassesThrough(BaseException):
    """Base of what heedful raises into a call into foreign code, such as a time limit."""


class RaisedElsewhere(Exception):
    """An error raised in another process. Its text already names the type, as `str(Raised(error))` gave it."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The error that a call raised instead of returning an answer."""

    error: BaseException

    def __str__(self) -> str:
        if isinstance(self.error, RaisedElsewhere):
            return str(self.error)
        told = guarded_call(lambda: str(self.error))  # foreign code, too
        return f"{type(self.error).__name__}: {told.value if isinstance(told, Answered) else 'its text cannot be read'}"

    @property
    def place(self) -> str:
        """The innermost line of code that raised the error, as `file.py, line 3`. Empty if that is unknown."""
        trace = first = self.error.__traceback__
        while trace is not None and trace.tb_next is not None:  # one error that is raised often has very many frames
            trace = trace.tb_next
        if trace is None or trace is first:
            return ""
        return f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"

    @property
    def located(self) -> str:
        """The error, and the line of code that raised it, if that is known."""
        return f"{self} ({self.place})" if self.place else str(self)


@dataclass(frozen=True, slots=True)
class Answered(Generic[Answer]):
    """The value that a call returned."""

    value: Answer


def guarded_call(call: Callable[[], Answer]) -> Answered[Answer] | Raised:
    """Call foreign code and return its answer, or the error that it raised."""
    try:
        return Answered(call())
    except BaseException as error:  # foreign code: its errors concern its caller only
        request = request_to_end(error)
        if request is not None:
            raise request from None
        return Raised(error)


def in_short(value: object) -> str:
    """How Python writes a value of someone's class, shortened. Its way to be written may raise."""
    told = guarded_call(lambda: f"{value!r:.80}")
    return told.value if isinstance(told, Answered) else f"a {type(value).__name__} that cannot be shown"


def request_to_end(error: BaseException | None) -> KeyboardInterrupt | PassesThrough | None:
    """The request to end that `error` is, or is made of.

    Python 3.11 wraps what a handler of signals raises inside of `__set_name__` into a RuntimeError. Libraries wrap that
    in turn when they import their modules.
    """
    seen: set[int] = set()  # errors can cause each other in a circle
    while error is not None and not isinstance(error, KeyboardInterrupt | PassesThrough):
        seen.add(id(error))
        error = None if id(error.__cause__) in seen else error.__cause__
    return error
