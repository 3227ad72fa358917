"""The program that runs math-verify, started by `verifier` as a separate process. It imports nothing of heedful.

One JSON line in, one JSON line out. An alarm of the kernel ends a question that hangs. This process outlives its
parent by the time limit of one question at most.

First line out: `{"ready": true}`, or `{"missing": "..."}` where the library is not installed. Then for each line
`{"right": ..., "answer": ..., "seconds": ...}` a line `{"read": bool, "equal": bool}`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from functools import lru_cache
from typing import Any, TextIO

MOST_MEMORY = 4 * 2**30
"""Bytes of address space. A reply may ask for a number that fills the machine."""


def main() -> None:
    """Answer questions until the other end closes."""
    # What a library prints must not end up between the answers.
    _leave_signals_to_the_parent()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        from math_verify import LatexExtractionConfig, parse, verify
    except ImportError as error:
        _write(answers, {"missing": str(error)})
        return
    _limit_memory()
    config = [LatexExtractionConfig()]  # the reader of plain expressions would `eval` them

    @lru_cache(maxsize=4096)
    def read(text: str) -> tuple[Any, ...]:
        return tuple(parse(f"${text}$", extraction_config=config, fallback_mode="no_fallback", parsing_timeout=None))

    def equal(right: str, answer: str) -> bool:
        sides = read(right), read(answer)
        return all(sides) and bool(verify(list(sides[0]), list(sides[1]), timeout_seconds=None))

    # Sympy loads much of itself when it is first used; no question should pay for that out of its own time.
    for right, answer in (("2\\sqrt{3}", "4"), ("x^2", "x(x+1)"), ("\\{1,2\\}", "(1,2)")):
        equal(right, answer)
    _write(answers, {"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        # Without a handler the alarm ends the process, even inside C code that never returns to Python.
        signal.setitimer(signal.ITIMER_REAL, question["seconds"])
        said = {"equal": equal(question["right"], question["answer"]), "read": bool(read(question["answer"]))}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(answers, said)


def _write(answers: TextIO, line: dict[str, Any]) -> None:
    answers.write(json.dumps(line) + "\n")
    answers.flush()


def _leave_signals_to_the_parent() -> None:
    """A scheduler signals every process of a job, and the parent still asks until its step is done."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: None)


def _limit_memory() -> None:
    if sys.platform == "linux":  # elsewhere the limit exists by name only
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        most = MOST_MEMORY if most == resource.RLIM_INFINITY else min(most, MOST_MEMORY)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
