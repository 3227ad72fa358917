"""What a program may use, what it wrote, and how it ended."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from lockbox.messages import NOT_STARTED, STARTED, UNCAUGHT, NotPlain, decode_value

Ending = Literal["ended", "error", "cpu", "waited", "output", "forbidden", "crashed"]
"""How a program ended: by itself, by an uncaught error, out of CPU time, out of time while it waited, by too much
output, by a system call that only an attack makes, or by another signal (also: out of memory in C)."""

_LEAST_MEMORY, _MOST_MEMORY, _LONGEST = 16 << 20, 1 << 46, 10**6
"""Bytes of address space, and seconds of CPU time and in all, that a program can be given."""

_NEARLY = 0.9
"""The kernel's limit counts clock ticks, its report counts nanoseconds. They differ by a few hundredths."""


class SandboxError(RuntimeError):
    """The sandbox itself failed: no supervisor could be started, or it ended twice during one program.

    This says nothing about the program."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use. Raises ValueError for limits that would fail every program."""

    cpu: int = 6
    """Whole seconds of CPU time, as the kernel counts them."""
    wall: float = 30.0
    """Seconds in all. Far above `cpu`, so that a busy machine fails nobody."""
    memory: int = 512 << 20
    """Bytes of address space, beyond those that the interpreter and its modules take before the program begins."""
    output: int = 1 << 20
    """Bytes that it may write to standard output, and to each other descriptor."""

    def __post_init__(self) -> None:
        if not (1 <= self.cpu <= _LONGEST and 0 < self.wall <= _LONGEST):
            raise ValueError(f"Expected cpu and wall above 0 and at most {_LONGEST:,} seconds, found {self}")
        if not _LEAST_MEMORY <= self.memory <= _MOST_MEMORY:
            raise ValueError(f"Expected memory from {_LEAST_MEMORY:,} to {_MOST_MEMORY:,} bytes, found {self}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one program."""

    ending: Ending
    status: int
    """Exit status. If a signal ended the program: minus its number."""
    stdout: bytes
    stderr: bytes
    result: bytes
    """What it wrote to the result descriptor: a claim of the program, to be read with `value`."""
    cpu: float
    """Seconds of CPU time."""
    wall: float
    """Seconds from start to end."""
    memory: int
    """Largest resident memory in bytes."""

    def value(self) -> Any:
        """The one value on the result descriptor. Raises NotPlain if it is anything else."""
        if self.ending != "ended" or not self.result.endswith(b"\n"):
            raise NotPlain("no value, since the program did not end by itself")
        return decode_value(self.result)


class Running:
    """A program that runs: what it has written so far, up to its limits, and its end."""

    def __init__(self, control: int, streams: list[int], limits: Limits) -> None:
        """Our ends of its pipes: `control`, and standard output, standard error and result."""
        self._control, self._limits = control, limits
        self._began = time.monotonic()
        self._streams = {each: bytearray() for each in streams}
        self._flooded = self._overdue = False
        self._report: tuple[int, float, int] | None = None
        self._wall = 0.0
        self.open = {*streams, control}
        """Descriptors that may still say something."""
        self.lost = False
        """The supervisor ended before the program."""

    @property
    def done(self) -> bool:
        """Nothing more is to come, or nothing more is wanted."""
        return self.lost or not self.open or (self._flooded and self._report is not None)

    def left(self) -> float:
        """Seconds until its deadline, when it is ended. Infinity after that."""
        if self._overdue or self._report is not None:
            return math.inf
        left = self._began + self._limits.wall - time.monotonic()
        if left <= 0:
            self._overdue = True
            self.stop()
        return max(0.0, left)

    def stop(self) -> None:
        """Ask for the end of the program. Its outcome is still to be read."""
        if self._report is None:
            with suppress(OSError):  # it ended in between
                os.write(self._control, b"k")

    def take(self, descriptor: int) -> None:
        """Read what has arrived."""
        data = os.read(descriptor, 1 << 16)
        if descriptor == self._control:
            self.open.discard(descriptor)
            self.lost = not data
            self._wall = time.monotonic() - self._began
            self._report = tuple(json.loads(data)) if data else None
        elif not data:
            self.open.discard(descriptor)
        else:
            kept = self._streams[descriptor]
            kept += data[: self._limits.output - len(kept)]
            if len(kept) >= self._limits.output and not self._flooded:
                self._flooded = True
                self.stop()

    def close(self) -> None:
        for each in (*self._streams, self._control):
            os.close(each)

    def outcome(self) -> Outcome | None:
        """The outcome, after `collect`. `None` if the supervisor ended before the program. Raises SandboxError."""
        if self._report is None:
            return None
        status, cpu, memory = self._report
        stdout, stderr, result = map(bytes, self._streams.values())
        if status == NOT_STARTED and not result.startswith(STARTED):
            raise SandboxError(stderr.decode("utf-8", "replace"))
        ending: Ending = "crashed"
        if self._flooded:
            ending = "output"
        elif status >= 0:
            ending = "error" if status == UNCAUGHT else "ended"
        elif self._overdue:
            ending = "waited"
        elif status == -signal.SIGXCPU or (status == -signal.SIGKILL and cpu >= _NEARLY * self._limits.cpu):
            ending = "cpu"
        elif status == -signal.SIGSYS:
            ending = "forbidden"
        return Outcome(ending, status, stdout, stderr, result.removeprefix(STARTED), cpu, self._wall, memory)


def collect(first: Running, *others: Running) -> None:
    """Read from programs that run together until the first has ended. Then the others are ended, too."""
    together = (first, *others)
    events = select.poll()
    owners = {each: one for one in together for each in one.open}
    for each in owners:
        events.register(each, select.POLLIN)
    try:
        while not all(each.done for each in together):
            left = min(each.left() for each in together)
            for descriptor, _ in events.poll(None if left == math.inf else left * 1000 + 1):
                owners[descriptor].take(descriptor)
                if descriptor not in owners[descriptor].open:
                    events.unregister(descriptor)
            if first.done:
                for other in others:
                    other.stop()
    finally:
        for one in together:
            one.close()
