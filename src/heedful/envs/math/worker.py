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


CLOSE = 1e-3
"""The largest difference of two equal numbers, as a share of the larger. Six decimals of 0.001 are as exact."""


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
        found = all(sides) and bool(verify(list(sides[0]), list(sides[1]), timeout_seconds=None))
        return found and not _far_apart(sides[0][0], sides[1][0])

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


def _far_apart(one: Any, other: Any) -> bool:
    """Whether two numbers, pairs or sets differ by more than `CLOSE`, though the library calls them equal.

    It rounds to six decimals, so all small numbers are equal there. A percentage is its number and its hundredth.
    """
    left, right = _numbers(one), _numbers(other)
    if len(left) != len(right):
        return False
    return any(
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


def _write(answers: TextIO, line: dict[str, Any]) -> None:
    answers.write(json.dumps(line) + "\n")
    answers.flush()


def _leave_signals_to_the_parent() -> None:
    """A scheduler signals every process of a job, and the parent still asks until its step is done."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)


def _limit_memory() -> None:
    if sys.platform == "linux":  # elsewhere the limit exists by name only
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        most = MOST_MEMORY if most == resource.RLIM_INFINITY else min(most, MOST_MEMORY)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
