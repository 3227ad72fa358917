"""Right programs pass in the idioms that people write, and wrong ones do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful_envs.code.environment import Code
from heedful_envs.code.files import read_row
from heedful_envs.code.grading import grade
from heedful_envs.code.programs import PRELUDE, read_program
from lockbox import Limits, Sandbox
from tests.heedful_envs.code.idioms import CHECKED, FENCES, FUNCTIONS, PROMPT, SCRIPTS, STARTER, SUM, WRONG

ADD = read_row({"question": "Add.", "input_output": {"inputs": ["3\n1 2 3\n"], "outputs": ["6\n"]}})
TOTAL = read_row(
    {
        "problem": "Add.",
        "starter_code": STARTER,
        "tests": [{"testtype": "functional", "input": "[1, 2, 3]", "output": "6", "fn_name": "total"}],
    }
)
DOUBLE = read_row(
    {
        "prompt": PROMPT,
        "entry_point": "double",
        "canonical_solution": "    return twice(x)\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n",
    }
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    for package in ("numpy", "sortedcontainers"):
        pytest.importorskip(package)
    with Sandbox("strict", Limits(cpu=6, wall=60), ("numpy", "sortedcontainers"), PRELUDE) as opened:
        yield opened


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_right_script_passes_in_every_idiom(sandbox: Sandbox, name: str) -> None:
    assert grade(ADD, SCRIPTS[name], sandbox, whole=True).failure is None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_right_function_passes_in_every_form_of_a_reply(sandbox: Sandbox, name: str) -> None:
    assert grade(TOTAL, FUNCTIONS[name], sandbox, whole=True).failure is None


@pytest.mark.parametrize("name", CHECKED)
def test_a_right_completion_passes_under_its_prompt(sandbox: Sandbox, name: str) -> None:
    assert grade(DOUBLE, CHECKED[name], sandbox, whole=True).failure is None


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_passes_in_no_form(sandbox: Sandbox, name: str) -> None:
    assert not grade(TOTAL, WRONG[name], sandbox, whole=True).right


@pytest.mark.parametrize("entry", ["gcd", "reduce", "product", "sum", "exit"])
def test_a_name_that_judges_import_is_no_answer(sandbox: Sandbox, entry: str) -> None:
    problem = read_row({"question": "?", "input_output": {"fn_name": entry, "inputs": [[[4, 6]]], "outputs": [10]}})
    assert not grade(problem, "x = 1\ndef other(): pass", sandbox, whole=True).right


@pytest.mark.parametrize("name", FENCES)
def test_a_fence_around_a_program_is_taken_off(name: str) -> None:
    assert read_program(f"<think>t</think><answer>{FENCES[name].replace('{}', SUM)}</answer>").text == SUM


def test_a_program_may_stand_to_the_right_under_a_list_and_hold_shorter_fences() -> None:
    body = "\n".join(f"   {line}" for line in SUM.split("\n"))
    assert read_program(f"<answer>1. So:\n\n   ```python\n{body}\n   ```</answer>").text == SUM
    held = f"s = '''\n```\nx\n```\n'''\n{SUM}"
    assert read_program(f"<answer>````python\n{held}\n````</answer>").text == held


def test_a_right_output_is_never_too_long(sandbox: Sandbox) -> None:
    wanted = "\n".join(map(str, range(200_000)))
    problem = read_row({"question": "Count.", "input_output": {"inputs": ["200000"], "outputs": [wanted]}})
    assert grade(problem, "print(*range(int(input())), sep='\\n')", sandbox, whole=True).right


@pytest.mark.parametrize("program", ["x[::-1]", "`x[::-1]`", "print('``` is no fence')", "x = '''a\n  ```b```\n'''"])
def test_a_program_without_a_fence_stays_as_it_is(program: str) -> None:
    assert read_program(f"<answer>{program}</answer>").text == program.strip("`")


def test_numbers_of_any_length_are_read_passed_and_compared(sandbox: Sandbox) -> None:
    long = "9" * 6000
    tests = [{"testtype": "functional", "input": f"{long}\n1", "output": f"1{'0' * 6000}", "fn_name": "add"}]
    problem = read_row({"problem": "Add.", "tests": json.dumps(tests)})
    assert grade(problem, "def add(a, b): return a + b", sandbox, whole=True).right
    wrong = grade(problem, "def add(a, b): return a + b + 1", sandbox, whole=True).failure
    assert wrong is not None
    assert wrong.got == "a number with too many digits to show"


def test_a_program_that_needs_a_module_which_is_not_here_is_told_so(tmp_path: Path) -> None:
    row = {"question": "Add.", "input_output": {"inputs": ["1"], "outputs": ["1"]}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    env = Code(path=str(tmp_path / "rows.jsonl"), sandbox="strict", wall=60.0)
    episode = env.episode()
    episode.start(env.task(0), 0)
    step = episode.step("<answer>import no_such.module\nprint(1)</answer>")
    assert step.observation.text.startswith(
        "Your program failed: it imports no_such, which programs cannot import here.\n"
    )


PLUS = """import numpy as np
def assertion(out, exp, atol):
    if atol == 0 and isinstance(exp, float): atol = 1e-6
    if out != exp and atol != 0: np.testing.assert_allclose(out, exp, rtol=1e-07, atol=atol)
    else: assert out == exp, f"out: {out}, exp: {exp}"
"""


@pytest.mark.parametrize(("program", "right"), [("return x / 3", True), ("return x / 3 + 1e-3", False)])
def test_the_rows_of_human_eval_plus_and_mbpp_plus_are_judged(sandbox: Sandbox, program: str, right: bool) -> None:
    loop = "for x, y in zip([[1], [2]], [0.33333334, 0.66666666]):\n"
    test = f"{PLUS}def check(candidate):\n  {loop}    assertion(candidate(*x), y, 0)\n"
    rows = [
        {"prompt": "def third(x):\n", "entry_point": "third", "canonical_solution": "    return x / 3", "test": test},
        {
            "prompt": "A third.",
            "code": "def third(x): return x / 3",
            "test_list": ["assert third(3) == 1"],
            "test": f"{PLUS}{loop}    assertion(third(*x), y, 0)\n",
        },
    ]
    for row in rows:
        assert grade(read_row(row), f"def third(x):\n    {program}", sandbox, whole=True).right is right
