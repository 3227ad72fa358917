"""Whether a program is right. It runs in the sandbox, and everything that is right stays outside.

A script gets one test's input and is judged by what it printed. A function is called with one test's arguments and is
judged by one value, read as plain data. A checker runs in another sandboxed process, and reaches the program by plain
data alone. Each test is a fresh process. So no comparison runs where the program could change it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from heedful_envs.code.problems import Case, Problem, apply
from lockbox import NotPlain, Outcome, Sandbox, SandboxError

_BUSY = 2.0
"""Processes that want to run, for each core, from which on a machine is too busy to blame a program for waiting."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first test that a program failed."""

    number: int
    """From 1."""
    reason: str
    """A clause: what the program did."""
    got: str = ""
    """What it printed or returned. Empty if it came to nothing."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What the tests say."""

    passed: int
    tests: int
    failure: Failure | None
    """The first failure, in the order of the tests."""

    @property
    def right(self) -> bool:
        return self.passed == self.tests


_REASONS = {
    "cpu": "it ran out of time",
    "waited": "it waited until its time was up",
    "output": "it printed too much",
    "forbidden": "it made a call that is not allowed",
    "crashed": "it crashed or ran out of memory",
}


def grade(problem: Problem, program: str, sandbox: Sandbox, whole: bool) -> Grade:
    """Test a program. `whole`: every test runs. Else testing ends at the first failure, since only all of them count.

    Raises SandboxError: the sandbox failed, or the machine is too busy to be fair. This says nothing about the program.
    """
    program = completed(problem, program)
    if problem.form == "checker":
        return _checked(problem, program, sandbox)
    passed, first = 0, None
    for number, case in enumerate(problem.cases, 1):
        outcome = _run(problem, program, case, sandbox)
        failure = _failure(problem, case, outcome, number)
        passed += failure is None
        first = first or failure
        if failure and not whole:
            break
    return Grade(passed, problem.tests, first)


def known_grade(problem: Problem, names: tuple[str, ...]) -> Grade:
    """What the tests of a drawn problem say of list operations. Nothing is run, since what they make is known."""
    for number, case in enumerate(problem.cases, 1):
        value = apply(names, case.given[0])
        if value != case.expected:
            return Grade(number - 1, problem.tests, Failure(number, "the value is wrong", repr(value)))
    return Grade(problem.tests, problem.tests, None)


def completed(problem: Problem, program: str) -> str:
    """The program to run. Of a function's body or expression, the function."""
    if not problem.entry or f"def {problem.entry}" in program or "class Solution" in program:
        return program
    if problem.starter:
        return f"{problem.starter}\n{program}" if problem.form == "function" else problem.starter + program
    return f"def {problem.entry}(x):\n    return ({program})\n"


def _run(problem: Problem, program: str, case: Case, sandbox: Sandbox) -> Outcome:
    """One test. A program that waited is run once more, since a busy machine looks the same."""
    for _ in range(2):
        if problem.form == "script":
            outcome = sandbox.run(program, case.given)
        else:
            outcome = sandbox.call(program, problem.entry, case.given)
        if outcome.ending != "waited":
            return outcome
    _check_busy()
    return outcome


def _check_busy() -> None:
    """Raise SandboxError if this machine has far more work than cores."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > _BUSY * cores:
        raise SandboxError(
            f"A program did not get its CPU time within the limit, twice, on a machine with a load of {load:.0f} on "
            f"{cores} cores. Run fewer processes, or raise --env.wall."
        )


def _failure(problem: Problem, case: Case, outcome: Outcome, number: int) -> Failure | None:
    """What is wrong. A script that printed the right text may have ended by `sys.exit` with any status."""
    if outcome.ending == "error":
        return Failure(number, f"it raised {last_line(outcome.stderr)}")
    if outcome.ending != "ended":
        return Failure(number, _REASONS[outcome.ending])
    if problem.form == "script":
        got = outcome.stdout.decode("utf-8", "replace")
        return None if same_output(got, case.expected) else Failure(number, "the output is wrong", got)
    try:
        value = outcome.value()
    except NotPlain as error:
        return Failure(number, f"it gave {error}")
    if same_value(value, case.expected):
        return None
    inside = case.expected[0] if isinstance(case.expected, list) and len(case.expected) == 1 else None
    if problem.wrapped and inside is not None and same_value(value, inside):
        return None
    return Failure(number, "the value is wrong", repr(value))


def _checked(problem: Problem, program: str, sandbox: Sandbox) -> Grade:
    for _ in range(2):
        verdict, candidate = sandbox.check(program, problem.entry, problem.checker)
        if "waited" not in (verdict.ending, candidate.ending):
            break
    else:
        _check_busy()
    try:
        right = verdict.value() is True
    except NotPlain:
        right = False
    if right:
        return Grade(1, 1, None)
    if candidate.ending == "error":
        reason = f"it raised {last_line(candidate.stderr)}"
    elif candidate.ending in _REASONS and candidate.status != -9:
        reason = _REASONS[candidate.ending]
    else:
        reason = "it did not pass the checks"
    return Grade(0, 1, Failure(1, reason))


def last_line(stderr: bytes) -> str:
    """The error that a traceback ends with."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else "an error"


def same_output(got: str, expected: str) -> bool:
    """LiveCodeBench's rule: lines equal without the spaces around them, else word by word as decimal numbers.

    Deviation: a word that is no finite number is compared as text, so NaN equals nothing but its own spelling.
    """
    ours, theirs = (text.strip().split("\n") for text in (got, expected))
    return len(ours) == len(theirs) and all(
        one.strip() == other.strip() or _same_numbers(one, other) for one, other in zip(ours, theirs, strict=True)
    )


def _same_numbers(one: str, other: str) -> bool:
    left, right = one.split(), other.split()
    if len(left) != len(right):
        return False
    try:
        numbers = [(Decimal(a), Decimal(b)) for a, b in zip(left, right, strict=True)]
    except InvalidOperation:
        return False
    return all(a.is_finite() and b.is_finite() and a == b for a, b in numbers)


def same_value(got: Any, expected: Any) -> bool:
    """Equal by type and content. A tuple is a list, and a whole number is a float where a float is expected.

    The keys of a JSON object are texts, so a number as a key equals its digits.
    """
    if isinstance(got, tuple):
        got = list(got)
    if isinstance(expected, tuple):
        expected = list(expected)
    if type(got) is bool or type(expected) is bool:
        return type(got) is type(expected) and bool(got == expected)
    if type(expected) is float and type(got) in (int, float):
        return abs(got) <= sys.float_info.max and float(got) == expected
    if type(got) is not type(expected):
        return False
    if type(expected) is list:
        return len(got) == len(expected) and all(map(same_value, got, expected))
    if type(expected) is dict:
        named = {_key(key): value for key, value in got.items()}
        wanted = {_key(key): value for key, value in expected.items()}
        if len(named) < len(got):  # 1 and "1" are two keys there
            return False
        return named.keys() == wanted.keys() and all(same_value(named[key], wanted[key]) for key in wanted)
    return bool(got == expected)


def _key(key: Any) -> Any:
    return str(key) if type(key) in (int, float) else key
