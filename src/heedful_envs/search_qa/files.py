"""A file of questions, opened: which rows are questions, and in which split each is.

Questions that are equal after normalisation are in one split, and so are questions that share a passage with their
answer, since a test question may be composed of training questions. Where more than a tenth of all questions hang
together in this way, they belong to `train`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from heedful.boundary import in_home
from heedful.envs.common import JsonLines, JsonList, ParquetRows, Rows, split_of
from heedful_envs.filed import Filed
from heedful_envs.search_qa.questions import (
    COLUMNS,
    FiledQuestion,
    different_passages,
    key_of,
    passage_key,
    read_question,
)
from heedful_envs.search_qa.retrieval import Passage

FILE_KINDS = (".jsonl", ".json", ".parquet")

LARGEST_SHARE = 0.1
"""Questions that hang together and are more than this share of a file belong to `train`."""


class QuestionFile(Filed[FiledQuestion]):
    """The questions of a file. Raises ValueError for rows that are none, unless they are to be skipped."""

    def __init__(self, path: Path, skip_faulty: bool) -> None:
        rows = rows_of(path)
        roots = array("Q")
        groups = _Groups()

        def where(row: int) -> str:
            return f"{path}:{rows.line(row)}" if isinstance(rows, JsonLines) else f"{path}, row {row + 1}"

        def join(question: FiledQuestion) -> None:
            roots.append(key_of(f"question {question.asked}"))
            groups.join(roots[-1], map(passage_key, question.gold_passages))

        super().__init__(
            "search_qa", str(path), rows, read_question, "a question with its answer", skip_faulty, where, join
        )
        self._roots = array("Q", map(groups.root, roots))
        counted = Counter(self._roots)
        self._large = {root for root, count in counted.items() if count > 1 and count > LARGEST_SHARE * len(self)}

    def split(self, number: int) -> str:
        """The split of a question."""
        root = self._roots[number]
        return "train" if root in self._large else split_of(f"search_qa {root}")


class _Groups:
    """Which questions hang together. The smallest key of a group stands for it."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}

    def join(self, question: int, passages: Iterator[int]) -> None:
        for passage in passages:
            low, high = sorted((self.root(question), self.root(passage)))
            if low != high:
                self._above[high] = low

    def root(self, key: int) -> int:
        found = key
        while found in self._above:
            found = self._above[found]
        while key in self._above:  # the next look-up is short
            self._above[key], key = found, self._above[key]
        return found


def rows_of(path: Path) -> Rows:
    """The rows of a file of questions."""
    if path.suffix == ".parquet":
        return ParquetRows(path, "search_qa", COLUMNS)
    return JsonList(path, "search_qa") if path.suffix == ".json" else JsonLines(path, "search_qa")


def check_named(path: str, knob: str, kinds: tuple[str, ...]) -> None:
    """Raise ValueError for a file that does not exist or is of an unknown kind."""
    place = in_home(path)
    if not place.name.endswith(kinds):
        raise ValueError(f"search_qa: {knob} must be a file of {', '.join(kinds)}, but is {path!r}.")
    if not place.is_file():
        raise ValueError(f"search_qa: {knob} names the file {path!r}, which does not exist.")


def open_questions(path: str, skip_faulty: bool) -> QuestionFile:
    """The questions of a file, opened once in a process for as long as the file stays as it is. Raises ValueError."""
    check_named(path, "questions", FILE_KINDS)
    place = in_home(path)
    return _opened(place, skip_faulty, (place.stat().st_mtime_ns, place.stat().st_size))


@lru_cache(maxsize=4)
def _opened(path: Path, skip_faulty: bool, stamp: tuple[int, int]) -> QuestionFile:
    return QuestionFile(path, skip_faulty)


def passages_with(questions: QuestionFile) -> Iterator[Passage]:
    """The different passages that come with the questions of a file."""
    return different_passages(iter(questions))
