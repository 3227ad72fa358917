"""Whether a program is right. It runs in the sandbox, and everything that is right stays outside.

A script gets one test's input and is judged by what it printed. A function is called with one test's arguments and is
judged by one value, read as plain data. A checker runs in another sandboxed process, and reaches the program by plain
data alone. Each test is a fresh process. So no comparison runs where the program could change it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any

from heedful_envs.code.problems import Case, Problem, apply
from heedful_envs.code.programs import completed
from lockbox import NotPlain, Outcome, Sandbox, SandboxError

_BUSY = 2.0
"""Processes that want to run, for each core, from which on a machine is too busy to blame a program for waiting."""

_LONGEST_GOT = 1000
"""Characters that are kept of what a program printed or returned."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first test that a program failed."""

    number: int
    """From 1."""
    reason: str
    """A clause: what the program did."""
    got: str = ""
    """What it printed or returned. Empty if it came to nothing."""
    lacks: bool = False
    """It imports a module that programs cannot import here."""


class FaultyChecker(RuntimeError):
    """The checker of a problem breaks with right programs, too. This says nothing about the program."""


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

    It also ends at a test that the program slept through, and when all have waited for four times the time of one.
    Raises SandboxError: the sandbox failed, or the machine is too busy to be fair. Raises FaultyChecker. Neither says
    anything about the program.
    """
    program = completed(problem, program)
    if problem.form == "checker":
        return _checked(problem, program, sandbox)

    def run(case: Case) -> tuple[Outcome, ...]:
        limits = replace(sandbox.limits, output=max(sandbox.limits.output, 4 * len(shown(case.expected))))
        if problem.form == "script":
            return (sandbox.run(program, case.given, limits),)
        return (sandbox.call(program, problem.entry, case.given, limits),)

    passed, waited = 0, 0.0
    first: Failure | None = None
    for number, case in enumerate(problem.cases, 1):
        (outcome,) = _patient(partial(run, case))
        failure = _failure(problem, case, outcome, number)
        passed += failure is None
        first = first or failure
        if failure and (not whole or outcome.ending == "waited"):
            break
        waited += outcome.wall - outcome.cpu
        if waited > 4 * sandbox.limits.wall and number < problem.tests:
            _check_busy()
            return Grade(passed, problem.tests, first or Failure(number + 1, _REASONS["waited"]))
    return Grade(passed, problem.tests, first)


def known_grade(problem: Problem, names: tuple[str, ...]) -> Grade:
    """What the tests of a drawn problem say of list operations. Nothing is run, since what they make is known."""
    for number, case in enumerate(problem.cases, 1):
        value = apply(names, case.given[0])
        if value != case.expected:
            return Grade(number - 1, problem.tests, Failure(number, "the value is wrong", repr(value)))
    return Grade(problem.tests, problem.tests, None)


def _check_busy() -> None:
    """Raise SandboxError if this machine has far more work than cores."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > _BUSY * cores:
        raise SandboxError(
            f"A program did not get its CPU time within the limit, twice, on a machine with a load of {load:.0f} on "
            f"{cores} cores. Run fewer processes, or raise --env.wall."
        )


def _patient(run: Callable[[], tuple[Outcome, ...]]) -> tuple[Outcome, ...]:
    """What came of programs. One that waited is run once more, since a busy machine looks the same."""
    outcomes = run()
    if any(each.ending == "waited" for each in outcomes):
        outcomes = run()
    if any(each.ending == "waited" for each in outcomes):
        _check_busy()
    return outcomes


def _failure(problem: Problem, case: Case, outcome: Outcome, number: int) -> Failure | None:
    """What is wrong. A script that printed the right text may have ended by `sys.exit` with any status."""
    if outcome.ending != "ended":
        return _ended(outcome, number)
    if problem.form == "script":
        got = outcome.stdout.decode("utf-8", "replace")
        return None if same_output(got, case.expected) else Failure(number, "the output is wrong", got[:_LONGEST_GOT])
    try:
        value = outcome.value()
    except NotPlain as error:
        return Failure(number, f"it gave {error}")
    expected = case.expected
    inside = problem.wrapped and isinstance(expected, list) and len(expected) == 1
    if same_value(value, expected) or (inside and same_value(value, expected[0])):
        return None
    return Failure(number, "the value is wrong", shown(value)[:_LONGEST_GOT])


def _ended(outcome: Outcome, number: int) -> Failure:
    """Why a program did not end by itself. One that needs a module which is not here is told apart."""
    if outcome.ending != "error":
        return Failure(number, _REASONS[outcome.ending])
    last = (outcome.stderr.decode("utf-8", "replace").strip().splitlines() or ["an error"])[-1].strip()
    if missing := re.fullmatch(r"ModuleNotFoundError: No module named '([\w.]+)'(?:;.*)?", last):
        return Failure(number, f"it imports {missing[1]}, which programs cannot import here", lacks=True)
    return Failure(number, f"it raised {last}")


def shown(value: Any) -> str:
    """A value as Python writes it. Python writes no number of more than some thousand digits."""
    try:
        return repr(value)
    except ValueError:
        return "a number with too many digits to show"


def _checked(problem: Problem, program: str, sandbox: Sandbox) -> Grade:
    """The verdict of a checker. Where it breaks, the problem's own solution decides whose fault that is."""
    word, told, candidate = _verdict(problem, program, sandbox)
    if word == "right":
        return Grade(1, 1, None)
    if word == "broken":
        solution = completed(problem, problem.solution) if problem.solution else program
        if program == solution or not _accepted(problem, solution, sandbox):
            raise FaultyChecker(f"the tests of {problem.name or problem.source[:60]!r} break by themselves: {told}")
    if word == "wrong":
        return Grade(0, 1, Failure(1, "it did not pass the checks"))
    if (candidate.ending, candidate.status) not in _CALLED_OFF:
        return Grade(0, 1, _ended(candidate, 1))
    return Grade(0, 1, Failure(1, f"it raised {told}" if word == "raised" else f"the tests cannot read it ({told})"))


_CALLED_OFF = (("ended", 0), ("crashed", -9))
"""How a program ends when its checker has: by itself, or because nobody needs it any more."""


@lru_cache(maxsize=1024)
def _accepted(problem: Problem, solution: str, sandbox: Sandbox) -> bool:
    """Whether the checker accepts the problem's own solution."""
    return _verdict(problem, solution, sandbox)[0] == "right"


def _verdict(problem: Problem, program: str, sandbox: Sandbox) -> tuple[str, str, Outcome]:
    """What the checker says, as in `Sandbox.check`, and how the program ended."""
    judge, candidate = _patient(lambda: sandbox.check(program, problem.entry, problem.checker))
    try:
        word, told = judge.value()
    except NotPlain:
        return "broken", _ended(judge, 1).reason if judge.ending != "ended" else "it ended early", candidate
    return word, told, candidate


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
    return shown(key) if type(key) in (int, float) else key
