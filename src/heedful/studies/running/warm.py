"""Runs that begin with everything loaded: forks of one process that has loaded it once.

Loading torch and transformers takes about five seconds of CPU time, as much as a third of a short run. For CPUs alone:
a process that has met an accelerator cannot be forked.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOM = 1024
"""Bytes of a blank argument of the server, over which its forks write their own command lines."""


@dataclass(slots=True)
class WarmProcess:
    """One run. It has those methods of `subprocess.Popen` that `Child` uses."""

    pid: int
    server: Warm
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.server.listen(0.0)
            self.returncode = self.server.codes.pop(self.pid, None)  # a later run may get its number
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            self.server.listen(None)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, and the server says so next
                os.kill(self.pid, number)


@dataclass(slots=True)
class Warm:
    """The process that has loaded everything, seen from the study that started it."""

    process: subprocess.Popen[bytes]
    codes: dict[int, int] = field(default_factory=dict)
    """Process -> its exit code, of those that have ended."""
    begun: list[int] = field(default_factory=list)
    running: set[int] = field(default_factory=set)

    def start(self, arguments: list[str], log: Path) -> WarmProcess:
        """Run `heedful ARGUMENTS`, with its output at the end of a file. Raises OSError where there is no process."""
        assert self.process.stdin is not None
        request = json.dumps({"arguments": arguments, "log": str(log.absolute())})
        with suppress(BrokenPipeError):  # it has ended, and `listen` hears of it
            self.process.stdin.write(request.encode() + b"\n")
        while not self.begun:
            if self.process.returncode is not None:
                raise ChildProcessError("The process that starts runs has ended. The same command goes on.")
            self.listen(None)
        pid = self.begun.pop()
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return WarmProcess(pid, self)

    def listen(self, seconds: float | None) -> None:
        """Take what the server has said, and wait for it so long. `None`: until it says something.

        Where it was killed, nobody hears how its runs end: they are killed, too.
        """
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], seconds)[0]:
            told = self.process.stdout.readline().split()  # the pipe has no buffer: nothing is read ahead
            if not told:
                self.process.wait()
                for pid in self.running:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    self.codes[pid] = -signal.SIGKILL
                self.running.clear()
                return
            pid, *code = map(int, told)
            if code:
                self.running.remove(pid)
                self.codes[pid] = code[0]
            else:
                self.begun.append(pid)
                self.running.update({pid} if pid > 0 else ())
            seconds = 0.0


@contextmanager
def warm_server(keep_open: tuple[int, ...]) -> Iterator[Warm]:
    """A server for the runs of a study. Runs that go on when it ends go on. `keep_open`: descriptors they inherit."""
    words = [sys.executable, "-P", "-m", "heedful.studies.running.warm", " " * ROOM]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    process = subprocess.Popen(words, start_new_session=True, pass_fds=keep_open, **pipes)  # type: ignore[call-overload]
    try:
        yield Warm(process)
    finally:
        process.stdin.close()
        process.wait()


def serve(requests: IO[bytes], answers: IO[bytes]) -> list[str] | None:
    """Fork a run for each request until there are no more. In a run: its arguments.

    Answers are the number of a run that begins, that number with the exit code of one that has ended, and where there
    is no room for another process, minus the number of the error.
    """
    running: set[int] = set()
    while True:
        if select.select([requests], [], [], 0.1 if running else None)[0]:
            line = requests.readline()
            if not line:
                return None
            asked = json.loads(line)
            try:
                pid = os.fork()
            except OSError as error:
                answers.write(f"-{error.errno}\n".encode())
                continue
            if not pid:
                os.setsid()
                for path, flags, places in ((asked["log"], os.O_WRONLY | os.O_APPEND, (1, 2)), (os.devnull, 0, (0,))):
                    opened = os.open(path, flags)
                    for place in places:
                        os.dup2(opened, place)
                arguments: list[str] = asked["arguments"]
                return arguments
            running.add(pid)
            answers.write(b"%d\n" % pid)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.remove(pid)
                answers.write(b"%d %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def show_as(words: list[str]) -> None:
    """Write a command line over the one with which this process began, where `ps` reads it. On Linux alone."""
    with suppress(FileNotFoundError):
        state = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        begin, end = map(int, state.rpartition(")")[2].split()[45:47])  # arg_start and arg_end of proc(5)
        line = "\0".join(words).encode("utf-8", "surrogateescape")[: end - begin - 1]
        ctypes.memmove(begin, line.ljust(end - begin, b"\0"), end - begin)


def main() -> None:
    """The server, and after a fork the run."""
    import heedful.run.loop
    import heedful.run.parts
    import heedful.run.train  # noqa: F401

    gc.collect()
    gc.freeze()  # what is loaded is shared by all runs: the collector of one must not copy it
    requests, answers = (os.fdopen(os.dup(place), mode, buffering=0) for place, mode in ((0, "rb"), (1, "wb")))
    os.dup2(2, 1)
    arguments = serve(requests, answers)
    if arguments is not None:
        requests.close()
        answers.close()
        sys.argv = ["heedful", *arguments]
        show_as([sys.executable, "-P", "-m", *sys.argv])
        runpy.run_module("heedful", run_name="__main__")


if __name__ == "__main__":
    main()
