"""What a program may use, what it wrote, and how it ended."""

from __future__ import annotations

import json
import os
import select
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from lockbox.messages import NOT_STARTED, STARTED, UNCAUGHT, NotPlain, Report, decode_value

Ending = Literal["ended", "error", "cpu", "waited", "output", "forbidden", "crashed"]
"""How a program ended: by itself, by an uncaught error, out of CPU time, out of time while it waited, by too much
output, by a system call that only an attack makes, or by another signal (also: out of memory in C)."""

_SIGSYS, _SIGKILL, _SIGXCPU = 31, 9, 24

_LEAST_MEMORY, _MOST_MEMORY = 64 << 20, 1 << 47
"""Bytes of address space that the interpreter itself takes, and that a 64-bit process can have."""

_LONGEST = 10**6
"""Seconds, of CPU time and in all."""

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
    """Bytes of address space, the interpreter's own 60 MB included."""
    output: int = 1 << 20
    """Bytes that it may write to standard output, and to each other descriptor."""

    def __post_init__(self) -> None:
        if not (1 <= self.cpu <= _LONGEST and 0 < self.wall <= _LONGEST and self.output >= 1):
            raise ValueError(
                f"Expected cpu and wall above 0 and at most {_LONGEST:,} seconds, and output above 0, found {self}"
            )
        if not _LEAST_MEMORY <= self.memory <= _MOST_MEMORY:
            raise ValueError(
                f"memory must be between {_LEAST_MEMORY >> 20} and {_MOST_MEMORY >> 20:,} MiB, found "
                f"{self.memory / 2**20:g} MiB"
            )


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


class Collected:
    """What one program wrote, up to its limits, and its end."""

    def __init__(self, control: int, streams: list[int], limits: Limits) -> None:
        """Our ends of its pipes: `control`, and standard output, standard error and result."""
        self._control, self._limits = control, limits
        self._streams = {each: bytearray() for each in streams}
        self._flooded = False
        self._report: Report | None = None
        self.open = {*streams, control}
        """Descriptors that may still say something."""
        self.lost = False
        """The supervisor ended before the program."""

    @property
    def done(self) -> bool:
        """Nothing more is to come, or nothing more is wanted."""
        return self.lost or not self.open or (self._flooded and self._report is not None)

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
            self._report = Report(*json.loads(data)) if data else None
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
        report = self._report
        if report is None:
            return None
        stdout, stderr, result = map(bytes, self._streams.values())
        if report.status == NOT_STARTED and not result.startswith(STARTED):
            raise SandboxError(stderr.decode("utf-8", "replace"))
        ending: Ending = "crashed"
        if self._flooded:
            ending = "output"
        elif report.status >= 0:
            ending = "error" if report.status == UNCAUGHT else "ended"
        elif report.overdue:
            ending = "waited"
        elif report.status in (-_SIGXCPU, -_SIGKILL) and report.cpu >= _NEARLY * self._limits.cpu:
            ending = "cpu"
        elif report.status == -_SIGSYS:
            ending = "forbidden"
        result = result.removeprefix(STARTED)
        return Outcome(ending, report.status, stdout, stderr, result, report.cpu, report.wall, report.memory)


def collect(first: Collected, *others: Collected) -> None:
    """Read from programs that run together until the first has ended. Then the others are ended, too."""
    together = (first, *others)
    events = select.poll()
    owners = {each: one for one in together for each in one.open}
    for each in owners:
        events.register(each, select.POLLIN)
    try:
        while not all(each.done for each in together):
            for descriptor, _ in events.poll():
                owners[descriptor].take(descriptor)
                if descriptor not in owners[descriptor].open:
                    events.unregister(descriptor)
            if first.done:
                for other in others:
                    other.stop()
    finally:
        for one in together:
            one.close()
