"""Waiting in tests: for an event, never for a clock. Only a test that fails reaches the limit."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 600.0
"""Seconds that a busy machine may take over what takes milliseconds or, with a new process, seconds."""


def comes(condition: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Whether the condition becomes true. It is asked every 10 ms."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def within_cpu_seconds(seconds: float) -> Iterator[None]:
    """Interrupts what takes more CPU time than this, by `TooLong`. The load of the machine does not matter."""

    def interrupt(number: int, frame: object) -> None:
        raise TooLong(f"It took more than {seconds:g} s of CPU time.")

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class TooLong(BaseException):
    """No handler of the tested code holds it back."""
