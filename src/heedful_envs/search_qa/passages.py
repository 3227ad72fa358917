"""Passages, their terms, and an index of them, in memory or on the disk.

The terms of a text are its lower-cased runs of letters and digits, of every script. Chinese and Japanese characters are
a term each. There is no stemming and no list of stop words. Everything else separates, so no text of an agent can be an
invalid query.

An index on the disk is a folder named by the hash of its corpus, built whole or not at all. It holds the passages (one
JSON object a line, and where each line begins), the arrays of `heedful_envs.bm25`, and a summary. The files are
memory-mapped, so that processes share them, but for the passages, which are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from heedful.boundary import read_json
from heedful_envs import bm25
from heedful_envs.row_files import RowFile, RowWriter, whole_folder

FORMULA = bm25.Formula(k1=1.2, b=0.75, weights=(2.0, 1.0))
"""Of titles and texts."""

LONGEST_TERM = 64
"""Characters. A longer run is cut into several terms."""

MOST_QUERIED = 64
"""Different terms of a query that count: the first ones."""

VERSION = 2
"""Of the folder's layout, of the terms and of the formula. Another one means another index."""

SUMMARY, PASSAGES = "index.json", "passages"
_TOLD_EVERY = 10_000

_ASCII_TERM = re.compile(f"[a-z0-9]{{1,{LONGEST_TERM}}}")
_IDEOGRAM = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TERM = re.compile(rf"[{_IDEOGRAM}]|[^\W_{_IDEOGRAM}]{{1,{LONGEST_TERM}}}")


def terms_of(text: str) -> list[str]:
    """The terms of a text in their order."""
    return (_ASCII_TERM if text.isascii() else _TERM).findall(text.lower())


def queried(text: str) -> list[str]:
    """The different terms of a query, in alphabetical order, so that sums of scores are the same each time."""
    return sorted(list(dict.fromkeys(terms_of(text)))[:MOST_QUERIED])


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of a corpus."""

    id: str
    title: str
    """May be empty."""
    text: str

    @property
    def contents(self) -> str:
        """Title and text as Search-R1 and FlashRAG write them into one field."""
        return f'"{self.title}"\n{self.text}' if self.title else self.text

    @property
    def terms(self) -> tuple[list[str], list[str]]:
        """The terms of title and text."""
        return terms_of(self.title), terms_of(self.text)


class Searcher(Protocol):
    """An index, or a server of one."""

    def search(self, query: str, most: int) -> list[Passage]:
        """The best `most` passages, best first. Any text is a query."""
        ...


@dataclass(frozen=True, slots=True)
class PassageIndex:
    """An index. The same passages in the same order give the same results everywhere. Safe for several threads."""

    index: bm25.Index
    passage: Callable[[int], Passage]
    """The passage at a place of the corpus."""

    def __len__(self) -> int:
        return len(self.index)

    def search(self, query: str, most: int) -> list[Passage]:
        """The best `most` passages, best first."""
        return [passage for passage, _ in self.scored(query, most)]

    def scored(self, query: str, most: int) -> list[tuple[Passage, float]]:
        """The same with their scores."""
        return [(self.passage(place), score) for place, score in self.index.best(queried(query), most)]


def index_of(passages: Iterable[Passage]) -> PassageIndex:
    """An index in memory."""
    held = list(passages)
    return PassageIndex(bm25.index_of((passage.terms for passage in held), FORMULA), held.__getitem__)


def folder_name(digest: str) -> str:
    """The name of the folder of an index. `digest`: a hash of what its corpus is read from."""
    return f"{digest[:16]}-v{VERSION}"


def build_index(
    name: str,
    digest: str,
    passages: Iterable[Passage],
    out: Path,
    progress: Callable[[int], None] = lambda passages: None,
) -> Path:
    """The folder of the index under `out`: the one that is there, or a new one. `progress`: passages so far.

    `name`: of the corpus, for people. `digest`: see `folder_name`. Raises ValueError for a corpus without passages.
    """
    final = out / folder_name(digest)
    if final.exists():
        return final
    with whole_folder(final) as part:
        with RowWriter(part / PASSAGES) as rows:
            count = bm25.write_index(part, (each.terms for each in _written(rows, passages, progress)), FORMULA)
        progress(count)
        if not count:
            raise ValueError(f"Expected passages in {name}, found none.")
        summary = {
            "kind": "heedful index",
            "version": VERSION,
            "passages": count,
            "corpus": {"name": name, "sha256": digest},
            "files": {path.name: path.stat().st_size for path in sorted(part.iterdir())},
        }
        (part / SUMMARY).write_text(json.dumps(summary, indent=2), encoding="utf-8")
    return final


def _written(rows: RowWriter, passages: Iterable[Passage], progress: Callable[[int], None]) -> Iterator[Passage]:
    """Write passages while they are handed on."""
    for count, passage in enumerate(passages, 1):
        rows.add({"id": passage.id, "title": passage.title, "text": passage.text})
        yield passage
        if count % _TOLD_EVERY == 0:
            progress(count)


def find_index(path: Path) -> Path:
    """The folder of an index: `path` itself, or the only one in it. Raises ValueError."""
    if (path / SUMMARY).is_file():
        return path
    inside = sorted(each.parent for each in path.glob(f"[!.]*/{SUMMARY}")) if path.is_dir() else []
    if len(inside) == 1:
        return inside[0]
    found = f"{len(inside)} of them: {', '.join(each.name for each in inside)}" if inside else "none"
    raise ValueError(
        f"Expected the folder of an index at {path}, found {found}. Build one with heedful index CORPUS --out "
        f"{path}, or name one of several."
    )


def open_index(path: Path) -> PassageIndex:
    """The index of a folder, opened once in a process. Raises ValueError for what is no whole index of this version."""
    folder = find_index(path)
    stamp = (folder / SUMMARY).stat()
    return _opened(folder, stamp.st_mtime_ns, stamp.st_ino)


@lru_cache(maxsize=8)
def _opened(folder: Path, modified: int, inode: int) -> PassageIndex:
    summary = read_json(folder / SUMMARY)
    if summary.get("version") != VERSION:
        raise ValueError(
            f"{folder}: expected an index of version {VERSION}, found another. Remove the folder, and build the index "
            "again with heedful index."
        )
    rows = RowFile(folder / PASSAGES)
    return PassageIndex(bm25.open_index(folder, summary["passages"]), lambda place: Passage(**rows[place]))
