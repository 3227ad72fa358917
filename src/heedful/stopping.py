"""Requests to stop this program: Ctrl-C, the signals that schedulers send, and a terminal that is closed.

SIGTERM is sent by schedulers, containers and `kill`. SIGUSR1 is sent by Slurm a while before a time limit, if a job
asks for it (`--signal=USR1@300`). SIGHUP is sent when a terminal is closed or a remote login is lost. A command that
can save finishes its step first. Every other command ends at once, and its context managers end what it started.

Schedulers signal every process of a job, and torchrun or a study pass a signal on as well. So signals that arrive
together are one request. A handler that the user's own program has installed is left in place, and a signal that is
ignored stays ignored: `nohup` does that with SIGHUP.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)

SAME_REQUEST = 1.0
"""Seconds in which a second signal repeats the first request. Two Ctrl-C are always two requests."""


class StoppedBySignal(KeyboardInterrupt):
    """One of `STOP_SIGNALS` ends the program. A KeyboardInterrupt, since it is handled like Ctrl-C."""

    def __init__(self, number: int, saved: str = "") -> None:
        """`saved`: what was saved before the end, as half a sentence. Empty for an end at once."""
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.saved = saved


def exit_code(number: int) -> int:
    """The exit code of a program that a signal stopped, as shells count: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + number


@dataclass(slots=True)
class StopRequest:
    """Whether a signal has asked a program to stop."""

    signal: int = 0
    """The first signal. 0 = none so far."""
    came: float = 0.0
    """When it came, on the clock of `time.monotonic`."""

    @property
    def asked(self) -> bool:
        return self.signal != 0


@dataclass(slots=True)
class _Listener:
    """A handler of signals that knows what came before."""

    finish_first: bool
    """The first request is noted only. A second one ends the program."""
    request: StopRequest = field(default_factory=StopRequest)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_the_terminal()
        first, now = self.request.signal, time.monotonic()
        both_typed = first == number == signal.SIGINT
        if first and not both_typed and now < self.request.came + SAME_REQUEST:
            return
        if not first:
            self.request.signal, self.request.came = number, now
            if self.finish_first:
                return
        raise KeyboardInterrupt if number == signal.SIGINT else StoppedBySignal(number)


@contextmanager
def end_at_once() -> Iterator[None]:
    """Raise StoppedBySignal in the body when one of `STOP_SIGNALS` arrives, as Ctrl-C raises KeyboardInterrupt."""
    with _handled((), _Listener(finish_first=False)):
        yield


@contextmanager
def finish_the_step_first() -> Iterator[StopRequest]:
    """Let the first Ctrl-C or signal of `STOP_SIGNALS` stop a loop after its step. A second one ends it at once.

    The second raises KeyboardInterrupt, or StoppedBySignal, which is one. Only a program's main thread may listen for
    signals. In other threads nothing is changed.
    """
    listener = _Listener(finish_first=True)
    outer = signal.getsignal(signal.SIGTERM)
    if isinstance(outer, _Listener):
        listener.request = outer.request
    with _handled((signal.SIGINT,), listener):
        yield listener.request


@contextmanager
def _handled(always: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handle the signals of `STOP_SIGNALS` that nobody else handles, and the ones of `always`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    free = [number for number in STOP_SIGNALS if is_free(number)]
    earlier = {number: signal.signal(number, handler) for number in (*always, *free)}
    try:
        yield
    finally:
        for number, before in earlier.items():
            signal.signal(number, before)


def is_free(number: int) -> bool:
    """Whether a signal's handler is the system's or ours. An ignored signal, and a handler of the user, stay."""
    handler = signal.getsignal(number)
    return handler is signal.SIG_DFL or isinstance(handler, _Listener)


def leave_the_terminal() -> None:
    """Write to the null device from here on, and no longer to a terminal: a closed one refuses every line."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        with suppress(OSError):  # it is closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)


def leave_signals_to_the_parent() -> None:
    """Have this process outlive requests to stop, for a child whose parent finishes a step with it and then ends it.

    A handler instead of SIG_IGN: what this process starts gets the system's handlers again.
    """
    for number in (signal.SIGINT, *STOP_SIGNALS):
        signal.signal(number, lambda number, frame: None)
