"""Ask math-verify whether two answers are equal, in processes that can be killed.

Every question is answered in about its time limit. A process that hangs or dies costs one question. No process is left
behind when this process ends or forks.

The processes are started when a question first needs them (importing sympy takes a second), at most `MOST_WORKERS`, one
question each at a time. They are ordinary child processes, so that they can also be started inside the worker processes
that environments are played in.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import select
import subprocess
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from heedful.envs.math.answers import Judgement, bare

MOST_WORKERS = 2
"""Processes at once. Further threads wait for one."""

START_LIMIT = 60.0
"""Seconds until a new process must have loaded math-verify."""

GRACE = 0.5
"""Seconds that a process has beyond its own alarm before it is killed from here."""

_MISSING = (
    "math: answers that are not plain numbers or words are judged with math-verify, which is not installed: "
    'pip install "heedful[math]", or accept only what is read exactly: --env.algebra false.'
)

_PROGRAM = Path(__file__).with_name("worker.py")


class Silent(Exception):
    """A worker died, or said nothing in time. Never leaves this module."""


class Worker:
    """One process that runs math-verify."""

    def __init__(self) -> None:
        # -P: the folder of the program, this package, must not stand on its import path.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # half a question in a buffer would be sent by a forked child that closes its copy
        )
        self._said = b""
        try:
            hello = self._hear(START_LIMIT)
        except Silent as error:
            self.close()
            raise RuntimeError(
                f"math-verify was expected to load within {START_LIMIT:g} s in a process of its own, but {error}. "
                f"See what `{sys.executable} -P {_PROGRAM}` says."
            ) from error
        if "missing" in hello:
            self.close()
            raise ModuleNotFoundError(f"{_MISSING} ({hello['missing']})")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, right: str, answer: str, seconds: float) -> dict[str, Any]:
        """What math-verify says of two answers. Raises `Silent`. The worker is then of no more use."""
        question = json.dumps({"right": right, "answer": answer, "seconds": seconds})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Silent("it had died before") from error
        return self._hear(seconds + GRACE)

    def _hear(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        until = time.monotonic() + seconds
        stream = self._process.stdout.fileno()
        readable = select.poll()  # select itself refuses the file numbers of a process with many open files
        readable.register(stream, select.POLLIN)
        while b"\n" not in self._said:
            left = until - time.monotonic()
            if left <= 0 or not readable.poll(1000 * left):
                raise Silent(f"nothing came in {seconds:g} s")
            piece = os.read(stream, 65536)
            if not piece:
                raise Silent("it died")
            self._said += piece
        line, _, self._said = self._said.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def close(self) -> None:
        """End the process now."""
        self._process.kill()
        self._process.wait()
        self.let_go()

    def let_go(self) -> None:
        """Close this end of the pipes, without a word to the process."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue  # a question that the dead process never read


class Verifier:
    """A few workers for any number of threads."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._free = threading.Semaphore(MOST_WORKERS)
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._busy: list[Worker] = []

    @property
    def pids(self) -> list[int]:
        """The processes that are alive."""
        return [worker.pid for worker in (*self._idle, *self._busy)]

    def ask(self, right: str, answer: str, seconds: float) -> dict[str, Any] | None:
        """What math-verify says. `None` if it gave no answer in time or died of the question.

        Raises:
            ModuleNotFoundError: math-verify is not installed.
            RuntimeError: it cannot be loaded.
        """
        with self._free:
            worker = self._living() or Worker()
            with self._lock:
                self._busy.append(worker)
            try:
                said = worker.ask(right, answer, seconds)
            except Silent:
                said = None
            with self._lock:
                self._busy.remove(worker)
                if said is not None:
                    self._idle.append(worker)
            if said is None:
                worker.close()
            return said

    def _living(self) -> Worker | None:
        """An idle worker. Workers that were killed from outside are removed."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                worker.close()
        return None

    def close(self) -> None:
        """End every process."""
        with self._lock:
            workers, self._idle = self._idle + self._busy, []
        for worker in workers:
            worker.close()

    def forget(self) -> None:
        """In a forked child: the processes are the parent's, and must not wait for this end of their pipes, too."""
        for worker in (*self._idle, *self._busy):
            worker.let_go()
        self._begin()  # locks that another thread held at the fork would stay held forever


VERIFIER = Verifier()
"""The one of this process."""

atexit.register(VERIFIER.close)
os.register_at_fork(after_in_child=VERIFIER.forget)


def check_installed() -> None:
    """Raise ModuleNotFoundError where math-verify is not installed. It is not loaded."""
    if importlib.util.find_spec("math_verify") is None:
        raise ModuleNotFoundError(_MISSING)


@lru_cache(maxsize=8192)
def verify(right: str, answer: str, seconds: float) -> Judgement:
    """Whether math-verify finds two answers equal. One that it cannot tell in time counts as not right.

    Raises:
        ModuleNotFoundError: math-verify is not installed.
        RuntimeError: it cannot be loaded.
    """
    said = VERIFIER.ask(bare(right), bare(answer), seconds)
    if said is None:
        return Judgement.UNDECIDED
    if not said["read"]:
        return Judgement.UNREADABLE
    return Judgement.RIGHT if said["equal"] else Judgement.WRONG
