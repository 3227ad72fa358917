"""Several runs as processes at the same time: started in turn, watched, interrupted together.

Promise: Ctrl-C, or a scheduler's signal, reaches every running process exactly once. No process outlives an error of
this module.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from heedful.boundary.system_errors import sentence_of
from heedful.stopping import STOP_SIGNALS, exit_code, is_free, leave_the_terminal
from heedful.storage import append
from heedful.studies.running.warm import Warm, WarmProcess

_SIGNALS = (signal.SIGINT, *STOP_SIGNALS)

POLL_SECONDS = 0.5

LAST_BYTES = 1 << 16
"""Read of the end of a log, which may be of any size."""

STOPPED_BY_ALARM = 3
"""The exit code of a run that its own alarm ended: it is over, and it did not fail."""

_STATES: dict[int | None, str] = {
    None: "running",
    0: "done",
    STOPPED_BY_ALARM: "stopped",
    **{exit_code(number): "interrupted" for number in _SIGNALS},
    **{-number: "interrupted" for number in _SIGNALS},
}
"""Exit code -> state; any other is a failure. A negative one: the signal came before the run could catch it."""


@dataclass(slots=True)
class Child:
    """One run: its name, the `heedful` command that runs it, where its output goes, and the process."""

    label: str
    log: Path
    arguments: Callable[[], list[str]]
    """Makes the arguments of the `heedful` command when the run is started."""
    keep_open: tuple[int, ...] = ()
    """File descriptors that the process inherits."""
    ready: Callable[[], bool] = lambda: True
    """Whether the run may begin: what it reads is there."""
    warm: Warm | None = None
    """Starts it, where processes with everything loaded are at hand."""
    process: subprocess.Popen[bytes] | WarmProcess | None = field(default=None, repr=False)
    refused: bool = False
    """Its arguments could not be made, so there is no process."""
    began: float = 0.0
    seconds: float = 0.0
    """Between start and end, as far as it was watched."""

    @property
    def state(self) -> str:
        """`waiting`, `running`, `done`, `stopped` (by an alarm), `interrupted` or `failed`."""
        if self.process is None:
            return "failed" if self.refused else "waiting"
        code = self.process.poll()
        if code is not None and not self.seconds:
            self.seconds = time.monotonic() - self.began
        return _STATES.get(code, "failed")

    @property
    def exit_code(self) -> int | None:
        return 2 if self.refused else None if self.process is None else self.process.returncode

    def start(self) -> None:
        """Start the process. Where its arguments cannot be made, its log says why and it has failed."""
        self.began = time.monotonic()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with append(self.log) as log:
            try:
                arguments = self.arguments()
            except (OSError, ValueError) as error:  # what it reads is damaged
                log.write(f"heedful: {sentence_of(error)}\n".encode("utf-8", "backslashreplace"))
                self.refused = True
                return
            if self.warm is not None:
                self.process = self.warm.start(arguments, self.log)
                return
            # A session of its own: the terminal's Ctrl-C must reach it once, through us, not twice (twice = at once).
            self.process = subprocess.Popen(
                heedful_command(arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=self.keep_open,
            )

    def interrupt(self) -> None:
        """Ask the run to finish its step and save; a second time: to stop at once."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def last_words(self, lines: int) -> list[str]:
        """The end of its log."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - LAST_BYTES))
            end = stream.read(LAST_BYTES)
        return end.decode("utf-8", "replace").splitlines()[-lines:]


def heedful_command(arguments: Sequence[str]) -> list[str]:
    """The command line of `heedful ARGUMENTS` under this very Python."""
    # -P: the working directory is not searched for libraries.
    return [sys.executable, "-P", "-m", "heedful", *arguments]


def run_children(children: Sequence[Child], at_once: int, show: Callable[[Mapping[str, str]], None]) -> int:
    """Run all children, `at_once` at a time; the signal that interrupted them, or 0.

    Children that are never ready are never begun.
    `show` is called with the state of every child, by label, about every `POLL_SECONDS`.
    """
    try:
        with _passing_on_signals(children) as asked:
            while True:
                states = {child.label: child.state for child in children}
                waiting = [child for child in children if states[child.label] == "waiting" and child.ready()]
                running = list(states.values()).count("running")
                show(states)
                if not running and (asked or not waiting):
                    return asked[0] if asked else 0
                for child in waiting[: 0 if asked else max(0, at_once - running)]:
                    child.start()
                    if asked:  # it came while this one was being started
                        child.interrupt()
                time.sleep(POLL_SECONDS)
    finally:
        for child in children:
            child.interrupt()
        for child in children:
            if child.process is not None:
                child.process.wait()


@contextmanager
def _passing_on_signals(children: Sequence[Child]) -> Iterator[list[int]]:
    """Hand Ctrl-C, and a request to end, to every child; yields the signals that came."""
    asked: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_the_terminal()
        asked.append(number)
        for child in children:
            child.interrupt()

    earlier = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, *filter(is_free, STOP_SIGNALS))}
    try:
        yield asked
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_once(device: str, threads: int) -> int:
    """How many runs fit at the same time: as many as have their threads, and one on an accelerator."""
    return 1 if device != "cpu" else max(1, cores() // threads)
