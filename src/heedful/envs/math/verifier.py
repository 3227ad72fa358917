"""Ask math-verify whether two answers are equal, in processes that can be killed.

Every question is answered in about its time limit. A process that hangs or dies costs one question. The processes are
started when a question first needs them (importing sympy takes a second), at most `MOST_WORKERS`, one question each at
a time.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import threading
from functools import lru_cache
from typing import Any

from heedful.envs.math.answers import Judgement, bare
from heedful.guarded import RaisedElsewhere
from heedful.worker import Answer, NotBegun, Worker, WorkerDied, WorkerTimedOut

MOST_WORKERS = 2
"""Processes at once. Further threads wait for one."""

START_LIMIT = 60.0
"""Seconds until a new process must have loaded math-verify."""

MOST_MEMORY = 4 * 2**30
"""Bytes of address space of a process. A reply may ask for a number that fills the machine."""

CLOSE = 1e-3
"""The largest difference of two equal numbers, as a share of the larger. Six decimals of 0.001 are as exact."""


class Verifier:
    """A few workers for any number of threads."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Without workers, as in a forked child: those of its parent are not its own."""
        self._free = threading.Semaphore(MOST_WORKERS)
        self._idle: list[Worker] = []
        self.pids: set[int] = set()
        """The processes that are not known to have ended."""

    def ask(self, right: str, answer: str, seconds: float) -> dict[str, Any] | None:
        """What math-verify says. `None` if it gave no answer in time or died of the question.

        Raises:
            ModuleNotFoundError: math-verify is not installed.
            RuntimeError: it cannot be loaded.
        """
        question = json.dumps({"right": right, "answer": answer}).encode()
        with self._free:
            while True:
                try:
                    worker, fresh = self._idle.pop(), False
                except IndexError:
                    worker, fresh = self._start(), True
                try:
                    said: dict[str, Any] | None = json.loads(worker.ask(question, seconds))
                except RaisedElsewhere:
                    said = None
                except (WorkerDied, WorkerTimedOut):
                    self.pids.discard(worker.process_id)
                    return None
                except NotBegun as dead:
                    self.pids.discard(worker.process_id)
                    if fresh:
                        raise RuntimeError(
                            f"math-verify was expected to load within {START_LIMIT:g} s in a process of its own, but "
                            f"it {dead}."
                        ) from dead
                    continue  # it was killed while it was idle
                self._idle.append(worker)
                return said

    def _start(self) -> Worker:
        check_installed()
        worker = Worker(load_math_verify, loading=START_LIMIT, quiet=True)
        self.pids.add(worker.process_id)
        return worker

    def close(self) -> None:
        """End every idle process."""
        while self._idle:
            worker = self._idle.pop()
            self.pids.discard(worker.process_id)
            worker.end()


VERIFIER = Verifier()
"""The one of this process."""

os.register_at_fork(after_in_child=VERIFIER.begin)


def check_installed() -> None:
    """Raise ModuleNotFoundError where math-verify is not installed. It is not loaded."""
    if importlib.util.find_spec("math_verify") is None:
        raise ModuleNotFoundError(
            "math: answers that are not plain numbers or words are judged with math-verify, which is not installed: "
            'pip install "heedful[math]", or accept only what is read exactly: --env.algebra false.'
        )


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


def load_math_verify(argument: bytes) -> Answer:
    """Inside a process: what answers `{"right": .., "answer": ..}` with `{"read": bool, "equal": bool}`."""
    from math_verify import LatexExtractionConfig, parse
    from math_verify import verify as library_verify

    if sys.platform == "linux":  # elsewhere the limit exists by name only
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        most = MOST_MEMORY if most == resource.RLIM_INFINITY else min(most, MOST_MEMORY)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    config = [LatexExtractionConfig()]  # the reader of plain expressions would `eval` them

    @lru_cache(maxsize=4096)
    def read(text: str) -> tuple[Any, ...]:
        return tuple(parse(f"${text}$", extraction_config=config, fallback_mode="no_fallback", parsing_timeout=None))

    def equal(right: str, answer: str) -> bool:
        sides = read(right), read(answer)
        found = all(sides) and bool(library_verify(list(sides[0]), list(sides[1]), timeout_seconds=None))
        return found and not _far_apart(sides[0][0], sides[1][0])

    def said(question: bytes) -> bytes:
        asked = json.loads(question)
        equals = equal(asked["right"], asked["answer"])
        return json.dumps({"equal": equals, "read": bool(read(asked["answer"]))}).encode()

    # Sympy loads much of itself when it is first used; no question should pay for that out of its own time.
    for right, answer in (("2\\sqrt{3}", "4"), ("x^2", "x(x+1)"), ("\\{1,2\\}", "(1,2)")):
        equal(right, answer)
    return said


def _far_apart(one: Any, other: Any) -> bool:
    """Whether two numbers, pairs or sets differ by more than `CLOSE`, though the library calls them equal.

    It rounds to six decimals, so all small numbers are equal there. A percentage is its number and its hundredth.
    """
    left, right = _numbers(one), _numbers(other)
    return len(left) == len(right) and any(
        all(abs(a * factor - b) > CLOSE * max(abs(a * factor), abs(b)) for factor in (1, 100, 0.01))
        for a, b in zip(left, right, strict=True)
    )


def _numbers(found: Any) -> list[complex]:
    """The numbers of an expression that is one, or of a tuple or a set. Empty for any other, and for huge ones."""
    found = getattr(found, "rhs", found)
    parts = found.args if type(found).__name__ in ("Tuple", "FiniteSet") else (found,)
    try:
        numbers = sorted((complex(part) for part in parts), key=lambda number: (number.real, number.imag))
        return numbers if all(abs(number) < 1e100 for number in numbers) else []
    except (TypeError, ValueError, OverflowError):
        return []
