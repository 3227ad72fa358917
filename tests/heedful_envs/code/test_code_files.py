"""Every form of file that people have is read, and what cannot be read is named."""

from __future__ import annotations

import base64
import json
import pickle
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heedful.envs.common import Filed
from heedful_envs.code.environment import Code
from heedful_envs.code.files import open_problems, read_row
from heedful_envs.code.problems import Case

CALLS = [{"type": "function_call", "fn_name": "add", "input": [1, 2], "output": [3]}]
SCRIPTS = [{"type": "stdin_stdout", "input": "1 2\n", "output": "3\n"}]
FUNCTIONAL = [{"testtype": "functional", "input": '[1, 2]\n"a"', "output": "[2, 1]", "metadata": {"func_name": "flip"}}]


def private(tests: list[dict[str, Any]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


ROWS: dict[str, tuple[Mapping[str, Any], str, str, tuple[Case, ...], int]] = {
    "deepcoder, primeintellect part, scripts": (
        {"problem": "Add.", "tests": json.dumps(SCRIPTS), "solutions": ["print(3)"], "starter_code": ""},
        *("script", "", (Case("1 2\n", "3\n"),), 0),
    ),
    "deepcoder, primeintellect part, functions": (
        {"problem": "Add.", "tests": json.dumps(CALLS), "solutions": []},
        *("function", "add", (Case([1, 2], [3]),), 0),
    ),
    "deepcoder, taco part": (
        {"problem": "Add.", "tests": json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]})},
        *("function", "add", (Case([1, 2], [3]),), 0),
    ),
    "deepcoder, lcbv5 part": (
        {"problem": "Flip.", "tests": json.dumps(FUNCTIONAL), "starter_code": "class Solution:\n", "metadata": "{}"},
        *("function", "flip", (Case([[1, 2], "a"], [2, 1]),), 0),
    ),
    "livecodebench": (
        {
            "question_content": "Flip.",
            "public_test_cases": json.dumps(FUNCTIONAL),
            "private_test_cases": private(FUNCTIONAL),
            "metadata": json.dumps({"func_name": "flip"}),
            "difficulty": "easy",
        },
        *("function", "flip", (Case([[1, 2], "a"], [2, 1]),) * 2, 1),
    ),
    "apps": (
        {"question": "Add.", "input_output": json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]}), "solutions": "[]"},
        *("script", "", (Case("1 2\n", "3\n"),), 0),
    ),
    "taco, lines as lists": (
        {"question": "Add.", "input_output": {"inputs": [["1", "2"]], "outputs": [["3"]]}},
        *("script", "", (Case("1\n2", "3"),), 0),
    ),
    "primeintellect": (
        {"prompt": "Add.", "verification_info": str({"language": "python", "test_cases": SCRIPTS})},
        *("script", "", (Case("1 2\n", "3\n"),), 0),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_each_published_form_is_read(name: str) -> None:
    row, form, entry, cases, shown = ROWS[name]
    problem = read_row(row)
    assert (problem.form, problem.entry, problem.cases, problem.shown) == (form, entry, cases, shown)


def test_the_assertions_of_mbpp_become_a_checker() -> None:
    problem = read_row(
        {"text": "Add.", "code": "def add(a, b):\n    return a + b", "test_list": ["assert add(1, 2) == 3"]}
    )
    assert (problem.form, problem.entry) == ("checker", "add")
    assert problem.checker == "\nassert add(1, 2) == 3"
    assert problem.statement == "Add.\nYour program must pass: assert add(1, 2) == 3"


class Planted:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("planted"),))


FAULTY: dict[str, tuple[Mapping[str, Any], str]] = {
    "no known columns": ({"a": 1}, "its columns (a) belong to no known form"),
    "no statement": ({"problem": " ", "tests": json.dumps(SCRIPTS)}, "it has no statement"),
    "no tests": ({"problem": "Add.", "tests": "[]"}, "it has no tests"),
    "tests that are no JSON": ({"problem": "Add.", "tests": "[{"}, "its columns have another form (AttributeError"),
    "a function without a name": (
        {"problem": "Add.", "tests": json.dumps([{"type": "function_call", "input": [1], "output": [1]}])},
        "its tests call a function that it does not name",
    ),
    "code that is no Python": (
        {"text": "Add.", "code": "def add(a, b:", "test_list": ["assert add(1, 2) == 3"]},
        "its columns have another form (SyntaxError",
    ),
    "private tests that are no text": (
        {"question_content": "Flip.", "public_test_cases": "[]", "private_test_cases": "abc"},
        "its private tests are neither JSON nor a compressed text",
    ),
    "another language": (
        {"prompt": "Add.", "verification_info": {"language": "rust", "test_cases": SCRIPTS}},
        "it asks for a program in rust, and only Python is run",
    ),
    "a pickle that runs code": (
        {
            "question_content": "Flip.",
            "public_test_cases": "[]",
            "private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(Planted()))).decode(),
        },
        "its private tests are a pickle with STACK_GLOBAL, which is no text",
    ),
    "a statement with half of a surrogate pair": (
        {"problem": "Add \ud800.", "tests": json.dumps(SCRIPTS)},
        "half of a surrogate pair",
    ),
    "an argument that is no plain data": (
        {"problem": "Add.", "tests": {"fn_name": "add", "inputs": ["[...]"], "outputs": ["1"]}},
        "a value of type ellipsis, which is not plain data",
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_row_that_is_no_problem_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row, words = FAULTY[name]
    with pytest.raises(ValueError, match=re.escape(words)):
        Filed("code", "it", [row], read_row, "a problem", False)
    assert list(tmp_path.iterdir()) == []


def write(path: Path, *rows: Mapping[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_file_with_faulty_rows_is_refused_or_read_without_them(tmp_path: Path) -> None:
    good = {"problem": "Add.", "tests": json.dumps(SCRIPTS)}
    path = write(tmp_path / "problems.jsonl", good, {"problem": "x", "tests": "[]"}, good)
    with pytest.raises(ValueError, match=r"found line 2: it has no tests\. Correct them, or leave such rows out"):
        open_problems(path, False)
    assert len(open_problems(path, True)) == 2


def test_a_file_is_played_and_its_hidden_tests_are_never_shown(tmp_path: Path) -> None:
    tests = [
        {"testtype": "stdin", "input": "1 2\n", "output": "3\n"},
        {"testtype": "stdin", "input": "20 22\n", "output": "4711\n"},
    ]
    row = {
        "question_content": "Add two numbers.",
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": json.dumps(tests[1:]),
    }
    env = Code(path=write(tmp_path / "problems.jsonl", row), sandbox="strict", wall=60.0)
    episode = env.episode()
    opening = episode.start(env.task(0), 0).text
    wrong = episode.step("<think>t</think><answer>print(4)</answer>")
    assert wrong.observation.text.startswith(
        "Your program failed test 1: the output is wrong. The input was 1 2. It gave 4. Expected was 3.\n"
    )
    over = episode.step("<think>t</think><answer>```python\nprint(sum(map(int, input().split())))\n```</answer>")
    assert over.ending is not None
    assert (over.outcome, over.progress, over.effect) == (0.0, 0.5, "attempt 2: failed test 2: the output is wrong")
    assert over.observation.text == "Your program failed a hidden test.\n"
    assert "4711" not in opening + wrong.observation.text + over.observation.text


def test_a_long_word_in_an_assertion_takes_no_time() -> None:
    """The square of its length before: minutes for this one."""
    row = {"text": "t", "code": "def f(x): return 1", "test_list": ["assert f(1) == 1", "x" * 300_000]}
    assert read_row(row).entry == "f"
