r"""Math problems from files: MetaMathQA, GSM8K and files of the same form, read row by row.

Opening a file checks every row and names the incomplete ones. After that, one problem at a time is read. The memory
holds one offset per row and the last problem.

| a row of   | has columns          | its source          | optional columns            |
|------------|----------------------|---------------------|-----------------------------|
| MetaMathQA | `query`, `response`  | `original_question` | `type`, a tag of the task   |
| GSM8K      | `question`, `answer` | its own question    | `original_question`, `type` |

The right answer is the last one that is marked: in `\boxed{}` or `\fbox{}`, behind `####`, or behind `The answer is` or
`**Answer:**`. Without a mark it is the whole `response` or `answer`, if that is one short line. A heading or a sentence
is no answer: such a row is refused.

A dataset that the library `datasets` can load is read in the same way: a name on the Hugging Face hub, a folder, or a
.json file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from heedful.boundary.open_files import in_home
from heedful.envs.common.rows import Faulty, Filed, Groups, Rows, check_file, rows_of, stamp_of, text_of
from heedful.envs.math.answers import BOX, LONGEST_ANSWER, bare, boxed
from heedful.guarded import Raised, guarded_call

LONGEST_BARE_ANSWER = 100
"""Characters of an `answer` that is taken whole."""

FILE_KINDS = (".jsonl", ".parquet")
PAIRS = (("query", "response"), ("question", "answer"))
_COLUMNS = {name for pair in PAIRS for name in pair} | {"original_question", "type"}
_SAYS = re.compile(
    r"(?P<sentence>\bthe (?:final |correct )?answer (?:is|=)"
    r"|^[\W_]*(?:the )?(?:final |correct )?(?:answer|ans)(?: is)?"
    r"(?=[\W_]*(?:[:=]|\n)|\.[*_ ]))|(?<!#)(?P<hashes>####)(?!#)",
    re.IGNORECASE | re.MULTILINE,
)
"""What announces an answer: a sentence, a heading or a word in bold, or GSM8K's hashes."""
_DISPLAY = re.compile(r"(?:\$\$|\\\[)\s*(.*?)\s*(?:\$\$|\\\])", re.DOTALL)
_PROSE = re.compile(
    r"\b(?:is|are|was|we|the|because|since|which|that|this|so|then|hence|therefore|thus|it|you|there|have|get|find|let"
    r"|conclusion|solution|step|check|explanation|verification|summary|note|method|case)\b|[a-z]{3}: ",
    re.IGNORECASE,
)
"""Words that a right answer does not hold. A text with one, or with a label, is a heading or a sentence."""
_CALCULATION = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True, slots=True)
class FiledProblem:
    """One row of a file."""

    question: str
    answer: str
    solution: str
    """The way to the answer, as the file has it. Empty if it has none."""
    source: str
    """The problem that this one rephrases, or its own question."""
    kind: str
    """The row's `type`. May be empty."""


class ProblemFile(Filed[FiledProblem]):
    """The problems of a file. Raises ValueError for rows without question or answer, unless they are to be skipped."""

    def __init__(self, name: str, rows: Rows, skip_faulty: bool) -> None:
        # Sources that ask the same question count as one, or the question could be in two splits.
        asked_by, groups = dict[int, int](), Groups()

        def join(problem: FiledProblem) -> None:
            source = _digest(problem.source)
            groups.join(asked_by.setdefault(_digest(problem.question), source), source)

        super().__init__("math", name, rows, read_row, "a question and an answer", skip_faulty, join)
        self._joined = groups.joined()

    def __getitem__(self, number: int) -> FiledProblem:
        found = super().__getitem__(number)
        joined = self._joined.get(_digest(found.source))
        return found if joined is None else replace(found, source=f"sources joined as {joined}")


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(" ".join(text.split()).encode(), digest_size=8).digest(), "big")


def read_row(row: Mapping[str, Any]) -> FiledProblem:
    """The problem of a row. Raises Faulty."""
    pair = next((pair for pair in PAIRS if all(name in row for name in pair)), None)
    if pair is None:
        have = ", ".join(sorted(row)) or "none"
        raise Faulty(f"expected the columns query and response, or question and answer, but there are {have}")
    question, written = (text_of(row[name] or "", name).strip() for name in pair)
    if not question or not written:
        raise Faulty(f"{pair[bool(question)]} is empty")
    answer, solution = _answer_of(written)
    if not answer:
        raise Faulty(f"no answer that can be read in {pair[1]}: mark it as \\boxed{{}}, `The answer is: ` or `#### `")
    if len(answer) > LONGEST_ANSWER:
        raise Faulty(f"the answer in {pair[1]} has {len(answer):,} characters, more than {LONGEST_ANSWER:,}")
    source, kind = (text_of(row.get(name) or "", name) for name in ("original_question", "type"))
    source = " ".join((source.strip() or question).split())
    return FiledProblem(question, answer, solution, source, kind)


def _answer_of(written: str) -> tuple[str, str]:
    """(right answer, the way to it) of a worked answer. Both empty if there is none that can be read."""
    marks = [(box.start(), boxed(written, box.end()), "box") for box in BOX.finditer(written)]
    marks += [(says.start(), _behind(written, says), says.lastgroup or "") for says in _SAYS.finditer(written)]
    kinds = {"box", "hashes", "sentence"}
    for start, answer, kind in sorted(marks, reverse=True):
        if kind in kinds and answer and (kind == "box" or not _is_prose(answer)):
            way = written if kind == "box" else re.sub(r"####[^\n]*\s*\Z", "", written[:start])
            return answer, _CALCULATION.sub("", way).strip()
        if kind == "sentence":  # an earlier one is no longer what is said in the end
            kinds = {"box"}
    whole = written.strip()
    if not marks and "\n" not in whole and len(whole) <= LONGEST_BARE_ANSWER and not _is_prose(whole):
        return whole, ""
    return "", ""


def _behind(written: str, says: re.Match[str]) -> str:
    """What stands behind the words that announce an answer. Empty behind hashes that head a section."""
    hashes = says.lastgroup == "hashes"
    text = (
        written[says.end() :].removeprefix("." if says["sentence"] else "").lstrip(" \t*_" if hashes else " \t\n*_:=")
    )
    if display := _DISPLAY.match(text):
        return display[1]
    line, _, rest = text.partition("\n")
    if hashes and rest.strip() and re.search(r"(?<!\\)\b[A-Za-z]{3}", line):
        return ""
    return re.split(r"\.\s+(?=[A-Z])", line)[0].strip().removesuffix(".").strip("*_ ").removesuffix(".")


def _is_prose(answer: str) -> bool:
    return len(answer) <= LONGEST_ANSWER and (_PROSE.search(answer) is not None or not bare(answer))


def check_named(path: str) -> None:
    """Raise ValueError for a file that does not exist, or is of an unknown kind. A dataset's name is not looked up."""
    place, kinds = in_home(path), (*FILE_KINDS, ".json")
    if place.is_file() or place.suffix in kinds:
        check_file("math", "path", path, kinds, ", or a dataset's name")


def open_problems(path: str, subset: str, part: str, skip_faulty: bool) -> ProblemFile:
    """The problems of a file or dataset, opened once in a process for as long as the file stays as it is.

    Raises:
        ValueError: it does not exist, cannot be read, or has rows without question or answer.
    """
    check_named(path)
    place = in_home(path)
    return _opened(path, subset, part, skip_faulty, stamp_of(place))


@lru_cache(maxsize=4)
def _opened(path: str, subset: str, part: str, skip_faulty: bool, stamp: tuple[int, int]) -> ProblemFile:
    place = in_home(path)
    filed = place.is_file() and place.suffix in FILE_KINDS
    rows = rows_of(place, "math", _COLUMNS) if filed else load_rows(path, subset, part)
    return ProblemFile(path, rows, skip_faulty)


def load_rows(name: str, subset: str, part: str) -> Rows:
    """The rows of split `part` of a dataset, in its configuration `subset` (empty: the only one).

    Raises:
        ValueError: there is no such dataset, configuration or split, or the hub cannot be reached.
        ModuleNotFoundError: the library is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise ModuleNotFoundError(
            f'math: {name!r} is read with the library datasets, which is not installed: pip install "heedful[math]", '
            "or give a .jsonl or .parquet file."
        ) from error
    place = in_home(name)
    if name == "pandas" and not place.exists():
        # The library's own builder of this name opens the pickles of the working directory.
        raise ValueError("math: 'pandas' names no dataset. Give a dataset, or a .jsonl or .parquet file.")
    whole = str(place.absolute())
    if place.exists() and (set("*?[]") & set(whole) or "::" in whole):
        raise ValueError(f"math: the library datasets reads *, ?, [, ] and :: in {whole!r} as patterns. Rename it.")

    def load() -> Any:
        if place.is_file():
            return datasets.load_dataset("json", data_files=whole, split="train")
        return datasets.load_dataset(whole if place.exists() else name, subset or None, split=part)

    loaded = guarded_call(load)  # builders of many formats, each with its own errors
    if isinstance(loaded, Raised):
        found = str(loaded.error).strip().partition("\n")[0].rstrip(".")
        raise ValueError(
            f"math: expected a dataset named {name!r}{f' with the configuration {subset!r}' if subset else ''} and the "
            f"split {part!r}, found: {type(loaded.error).__name__}: {found}. Check the name and the network, or give a "
            ".jsonl or .parquet file as --env.path FILE."
        ) from loaded.error
    rows: Rows = loaded.value
    return rows
