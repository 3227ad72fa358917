"""Where the passages for a file's questions are: an index on the disk, one in memory, or a server."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.boundary import in_home
from heedful.policies.servers import read_key
from heedful_envs.search_qa.files import FILE_KINDS, check_named, open_questions, passages_with
from heedful_envs.search_qa.retrieval import Searcher, SmallIndex
from heedful_envs.search_qa.retrieval.corpora import CORPUS_KINDS, read_corpus
from heedful_envs.search_qa.retrieval.folder import find_index, open_index
from heedful_envs.search_qa.server import check_url, server_of

if TYPE_CHECKING:
    from heedful_envs.search_qa.environment import SearchQA

OWN_PASSAGES = "questions"
"""In place of a corpus: the passages that come with the questions."""


MOST_PASSAGES = 100_000
"""Passages that are indexed in memory on the spot. More belong into an index on the disk."""


def check_place(env: SearchQA) -> None:
    """Raise ValueError for what is missing, is there twice, or does not exist."""
    given = [name for name in ("corpus", "index", "url") if getattr(env, name)]
    if not env.questions:
        if given:
            raise ValueError(
                f"search_qa: {given[0]} is for the questions of a file, and none is named: add --env.questions "
                "FILE, or leave it out. Drawn questions bring their passages."
            )
        return
    check_named(env.questions, "questions", FILE_KINDS)
    if len(given) != 1:
        found = " and ".join(given) or "nothing"
        raise ValueError(
            "search_qa: questions of a file need passages in one place: --env.corpus FILE (or questions, for "
            f"those of the file itself), --env.index FOLDER or --env.url URL. Found {found}."
        )
    if env.corpus and env.corpus != OWN_PASSAGES:
        check_named(env.corpus, "corpus", CORPUS_KINDS)
    if env.index:
        find_index(in_home(env.index))
    if env.url:
        check_url(env.url)
        read_key(env.key_env)


def searcher_of(env: SearchQA) -> Searcher:
    """What answers searches. Opened once in a process."""
    if env.url:
        return server_of(env.url, env.protocol, env.timeout, env.patience, env.key_env)
    if env.index:
        return open_index(in_home(env.index))
    own = env.corpus == OWN_PASSAGES
    place = in_home(env.questions if own else env.corpus)
    stamp = place.stat()
    return _in_memory(place, env.questions if own else "", env.skip_faulty, (stamp.st_mtime_ns, stamp.st_size))


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
