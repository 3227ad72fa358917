"""`heedful index`: an index of passages on the disk, for the environment search_qa and for `heedful serve-search`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.boundary import CommandLine, Positional, complain, in_home, tell
from heedful_envs.search_qa.corpora import read_corpus, read_rows
from heedful_envs.search_qa.files import QuestionFile
from heedful_envs.search_qa.passages import Passage, build_index, folder_name, open_index


@dataclass(frozen=True, slots=True)
class IndexWords:
    """Build an index of the passages of a file, once.

    The folder under --out is named by the hash of the file, and nothing is done where it is there. An interrupted build
    leaves nothing. docs/search.md lists the forms of files.

      heedful index wiki-18.jsonl.gz --out indexes
      heedful index hotpot_dev_distractor_v1.json --out indexes     (the passages that come with the questions)
      heedful train search_qa --model MODEL --env.questions train.parquet --env.index indexes
    """

    corpus: Annotated[str, Positional("CORPUS", example="passages.jsonl")]
    """A file of passages (.jsonl, .jsonl.gz, .json), or of questions of HotpotQA, 2WikiMultihopQA or MuSiQue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """Settings of an index."""

    out: str = "indexes"
    """Folder under which the folder of the index is."""
    skip_faulty: bool = False
    """Questions: leave out the rows that hold no question."""


def main(argv: list[str]) -> int:
    """build an index of passages, for the environment search_qa"""
    line = CommandLine(IndexWords, argv, "heedful index")
    settings = line.settings(IndexSettings, IndexSettings())
    path = in_home(line.words.corpus)
    if not path.is_file():
        raise ValueError(f"Expected a file of passages at {path}, found none.")
    folder = index_file(path, in_home(settings.out), settings.skip_faulty)
    tell(str(folder))
    return 0


def index_file(path: Path, out: Path, skip_faulty: bool = False) -> Path:
    """The folder of the index of a file's passages, built if it is not there."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    how = "found" if (out / folder_name(digest)).exists() else "built"
    began = time.perf_counter()

    def progress(passages: int) -> None:
        complain(f"{passages:,} passages, {time.perf_counter() - began:.0f} s")

    folder = build_index(path.name, digest, _passages_of(path, skip_faulty), out, progress)
    complain(f"{how}: {len(open_index(folder)):,} passages of {path.name}")
    return folder


def _passages_of(path: Path, skip_faulty: bool) -> Iterator[Passage]:
    """The passages of a corpus, or those that come with questions. The first row tells which."""
    _, first = (0, {}) if path.suffix == ".parquet" else next(read_rows(path), (0, {}))
    asks = isinstance(first, dict) and "question" in first and ("context" in first or "paragraphs" in first)
    return QuestionFile(path, skip_faulty).passages() if asks or path.suffix == ".parquet" else read_corpus(path)
