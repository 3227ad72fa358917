"""A file of questions, opened: which rows are questions, in which split each is, and what answers searches for them.

Questions that are equal after normalisation are in one split, and so are questions that share a passage with their
answer, since a test question may be composed of training questions. Where more than a tenth of all questions hang
together in this way, they belong to `train`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.boundary import in_home
from heedful.envs.common import Filed, Groups, check_file, rows_of, split_of, stamp_of
from heedful.policies.servers import read_key
from heedful_envs.search_qa.corpora import CORPUS_KINDS, read_corpus
from heedful_envs.search_qa.passages import Passage, PassageIndex, Searcher, find_index, index_of, open_index
from heedful_envs.search_qa.questions import COLUMNS, FiledQuestion, key_of, passage_key, read_question
from heedful_envs.search_qa.server import check_url, server_of

if TYPE_CHECKING:
    from heedful_envs.search_qa.environment import SearchQA

FILE_KINDS = (".jsonl", ".json", ".parquet")

LARGEST_SHARE = 0.1
"""Questions that hang together and are more than this share of a file belong to `train`."""

OWN_PASSAGES = "questions"
"""In place of a corpus: the passages that come with the questions."""

MOST_PASSAGES = 100_000
"""Passages that are indexed in memory on the spot. More belong into an index on the disk."""


class QuestionFile(Filed[FiledQuestion]):
    """The questions of a file. Raises ValueError for rows that are none, unless they are to be skipped."""

    def __init__(self, path: Path, skip_faulty: bool) -> None:
        rows, keys, groups = rows_of(path, "search_qa", COLUMNS), array("Q"), Groups()

        def join(question: FiledQuestion) -> None:
            keys.append(key_of(f"question {question.asked}"))
            for passage in question.gold_passages:
                groups.join(keys[-1], passage_key(passage))

        super().__init__("search_qa", str(path), rows, read_question, "a question with its answer", skip_faulty, join)
        self._roots = array("Q", map(groups.root, keys))
        counted = Counter(self._roots)
        self._large = {root for root, count in counted.items() if count > 1 and count > LARGEST_SHARE * len(self)}

    def split(self, number: int) -> str:
        """The split of a question."""
        root = self._roots[number]
        return "train" if root in self._large else split_of(f"search_qa {root}")

    def passages(self) -> Iterator[Passage]:
        """The different passages that come with the questions, numbered in their order."""
        seen: set[int] = set()
        for question in self:
            for passage in question.passages:
                key = passage_key(passage)
                if key not in seen and (passage.text.strip() or passage.title.strip()):
                    yield Passage(str(len(seen)), passage.title, passage.text)
                    seen.add(key)


def open_questions(path: str, skip_faulty: bool) -> QuestionFile:
    """The questions of a file, opened once in a process for as long as the file stays as it is. Raises ValueError."""
    check_file("search_qa", "questions", path, FILE_KINDS)
    place = in_home(path)
    return _opened(place, skip_faulty, stamp_of(place))


@lru_cache(maxsize=4)
def _opened(path: Path, skip_faulty: bool, stamp: tuple[int, int]) -> QuestionFile:
    return QuestionFile(path, skip_faulty)


def check_place(env: SearchQA) -> None:
    """Raise ValueError for questions or passages that are missing, are there twice, or do not exist."""
    given = [name for name in ("corpus", "index", "url") if getattr(env, name)]
    if not env.questions:
        if given:
            raise ValueError(
                f"search_qa: {given[0]} is for the questions of a file, and none is named: add --env.questions "
                "FILE, or leave it out. Drawn questions bring their passages."
            )
        return
    check_file(env.name, "questions", env.questions, FILE_KINDS)
    if len(given) != 1:
        found = " and ".join(given) or "nothing"
        raise ValueError(
            "search_qa: questions of a file need passages in one place: --env.corpus FILE (or questions, for "
            f"those of the file itself), --env.index FOLDER or --env.url URL. Found {found}."
        )
    if env.corpus and env.corpus != OWN_PASSAGES:
        check_file(env.name, "corpus", env.corpus, CORPUS_KINDS)
    if env.index:
        find_index(in_home(env.index))
    if env.url:
        check_url(env.url)
        read_key(env.key_env)


def searcher_of(env: SearchQA) -> Searcher:
    """What answers searches for a file's questions. Opened once in a process."""
    if env.url:
        return server_of(env.url, env.protocol, env.timeout, env.patience, env.key_env)
    if env.index:
        return open_index(in_home(env.index))
    own = env.corpus == OWN_PASSAGES
    place = in_home(env.questions if own else env.corpus)
    return _in_memory(place, env.questions if own else "", env.skip_faulty, stamp_of(place))


@lru_cache(maxsize=2)
def _in_memory(place: Path, questions: str, skip_faulty: bool, stamp: tuple[int, int]) -> PassageIndex:
    passages = open_questions(questions, skip_faulty).passages() if questions else read_corpus(place)
    index = index_of(islice(passages, MOST_PASSAGES + 1))
    if not index:
        raise ValueError(f"search_qa: expected passages in {place}, found none. Name a corpus with --env.corpus FILE.")
    if len(index) > MOST_PASSAGES:
        raise ValueError(
            f"search_qa: {place} has more than {MOST_PASSAGES:,} passages, too many for an index in memory. "
            "Build one on the disk with heedful index, and name its folder with --env.index."
        )
    return index
