"""Where the passages for a file's questions are: an index on the disk, one in memory, or a server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from heedful.boundary import in_home
from heedful.policies.servers import read_key
from heedful_envs.search_qa.files import FILE_KINDS, check_named, open_questions, passages_with
from heedful_envs.search_qa.retrieval import Searcher, SmallIndex
from heedful_envs.search_qa.retrieval.corpora import CORPUS_KINDS, read_corpus
from heedful_envs.search_qa.retrieval.folder import find_index, open_index
from heedful_envs.search_qa.server import Protocol, check_url, server_of

OWN_PASSAGES = "questions"
"""In place of a corpus: the passages that come with the questions."""


MOST_PASSAGES = 100_000
"""Passages that are indexed in memory on the spot. More belong into an index on the disk."""


@dataclass(frozen=True, slots=True)
class Source:
    """The knobs that say where questions and passages are."""

    questions: str
    skip_faulty: bool
    corpus: str
    index: str
    url: str
    protocol: Protocol
    timeout: float
    patience: float
    key_env: str

    def check(self) -> None:
        """Raise ValueError for what is missing, is there twice, or does not exist."""
        given = [name for name in ("corpus", "index", "url") if getattr(self, name)]
        if not self.questions:
            if given:
                raise ValueError(
                    f"search_qa: {given[0]} is for the questions of a file, and none is named: add --env.questions "
                    "FILE, or leave it out. Drawn questions bring their passages."
                )
            return
        check_named(self.questions, "questions", FILE_KINDS)
        if len(given) != 1:
            found = " and ".join(given) or "nothing"
            raise ValueError(
                "search_qa: questions of a file need passages in one place: --env.corpus FILE (or questions, for "
                f"those of the file itself), --env.index FOLDER or --env.url URL. Found {found}."
            )
        if self.corpus and self.corpus != OWN_PASSAGES:
            check_named(self.corpus, "corpus", CORPUS_KINDS)
        if self.index:
            find_index(in_home(self.index))
        if self.url:
            check_url(self.url)
            read_key(self.key_env)

    def searcher(self) -> Searcher:
        """What answers searches. Opened once in a process."""
        if self.url:
            return server_of(self.url, self.protocol, self.timeout, self.patience, self.key_env)
        if self.index:
            return open_index(in_home(self.index))
        own = self.corpus == OWN_PASSAGES
        place = in_home(self.questions if own else self.corpus)
        stamp = place.stat()
        return _in_memory(place, self.questions if own else "", self.skip_faulty, (stamp.st_mtime_ns, stamp.st_size))


@lru_cache(maxsize=2)
def _in_memory(place: Path, questions: str, skip_faulty: bool, stamp: tuple[int, int]) -> SmallIndex:
    passages = passages_with(open_questions(questions, skip_faulty)) if questions else read_corpus(place)
    index = SmallIndex(islice(passages, MOST_PASSAGES + 1))
    if not index:
        raise ValueError(f"search_qa: expected passages in {place}, found none. Name a corpus with --env.corpus FILE.")
    if len(index) > MOST_PASSAGES:
        raise ValueError(
            f"search_qa: {place} has more than {MOST_PASSAGES:,} passages, too many for an index in memory. "
            "Build one on the disk with heedful index, and name its folder with --env.index."
        )
    return index
