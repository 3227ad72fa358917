"""`heedful index`: an index of passages on the disk, for the environment search_qa and for `heedful serve-search`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from heedful.boundary import CommandLine, Positional, complain, in_home, tell
from heedful_envs.search_qa.files import FILE_KINDS, QuestionFile, passages_with, rows_of
from heedful_envs.search_qa.retrieval import Passage
from heedful_envs.search_qa.retrieval.corpora import CORPUS_KINDS, digest_of, is_corpus_name, read_corpus, read_lines
from heedful_envs.search_qa.retrieval.folder import Engine, IndexFolder, Source, build, open_built, open_index
from heedful_envs.search_qa.retrieval.large import check_installed


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
    engine: Literal["tantivy", "numpy"] = "tantivy"
    """`tantivy`: any number of passages, with the extra `search`. `numpy`: up to 100,000, without any extra."""
    skip_faulty: bool = False
    """Questions: leave out the rows that hold no question."""


def main(argv: list[str]) -> int:
    """build an index of passages, for the environment search_qa"""
    line = CommandLine(IndexWords, argv, "heedful index")
    settings = line.settings(IndexSettings, IndexSettings())
    path = in_home(line.words.corpus)
    if not path.is_file():
        raise ValueError(f"Expected a file of passages at {path}, found none.")
    folder = index_file(path, in_home(settings.out), settings.engine, settings.skip_faulty)
    tell(str(folder))
    return 0


def index_file(path: Path, out: Path, engine: Engine, skip_faulty: bool = False) -> Path:
    """The folder of the index of a file's passages, built if it is not there."""
    if engine == "tantivy":
        check_installed()
    state = _state(path)
    source = Source(path.name, digest_of(path))
    if (out / source.folder(engine)).exists():
        _told(open_built(out / source.folder(engine)), "found")
        return out / source.folder(engine)
    began = time.perf_counter()

    def progress(passages: int) -> None:
        seconds = time.perf_counter() - began
        complain(f"{passages:,} passages, {seconds:.0f} s")

    passages = _of_unchanged(path, state, passages_of(path, skip_faulty))
    folder = build(source, passages, out, engine, progress)
    _told(open_index(folder), "built")
    return folder


def _state(path: Path) -> tuple[int, int, int]:
    """What differs for a file that was replaced or written to."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _of_unchanged(path: Path, state: tuple[int, int, int], passages: Iterator[Passage]) -> Iterator[Passage]:
    """The passages. Raises ValueError at their end if the file changed, since its hash is the index' name."""
    yield from passages
    if _state(path) != state:
        raise ValueError(
            f"Expected {path} to stay as it was, found that it changed while it was read. Build the index again when "
            "nothing writes to it."
        )


def passages_of(path: Path, skip_faulty: bool) -> Iterator[Passage]:
    """The passages of a corpus, or those that come with questions. The first row tells which."""
    if _holds_questions(path):
        return passages_with(QuestionFile(path, skip_faulty))
    return read_corpus(path)


def _holds_questions(path: Path) -> bool:
    if path.suffix == ".parquet":
        return True
    if not is_corpus_name(path):
        kinds = ", ".join(dict.fromkeys((*CORPUS_KINDS, *FILE_KINDS)))
        raise ValueError(f"Expected a file of passages or questions ({kinds}), found {path.name!r}.")
    if path.suffix == ".gz":
        return False
    if path.suffix == ".json" and not _is_list_of_objects(path):
        return False
    if path.suffix == ".json":
        first = next(islice(iter(rows_of(path)), 1), {})
    else:  # the first line alone, however long the others are
        _, first = next(read_lines(path), (0, {}))
    return isinstance(first, dict) and "question" in first and ("context" in first or "paragraphs" in first)


def _is_list_of_objects(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(1 << 16).removeprefix(b"\xef\xbb\xbf").split()
    return b"".join(start[:2]).startswith(b"[{")


def _told(index: IndexFolder, how: str) -> None:
    complain(f"{how}: {len(index):,} passages of {index.summary['corpus']['name']}, by {index.summary['engine']}")
