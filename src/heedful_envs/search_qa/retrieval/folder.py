"""An index on the disk: a folder named by the hash of its corpus, built whole or not at all.

It holds the passages (one JSON object a line, and where each line begins), the arrays of `heedful_envs.bm25`, and a
summary. Building writes into a hidden folder and renames it at the end. The files are memory-mapped, so that processes
share them, but for the passages, which are read.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from heedful.boundary import read_json
from heedful_envs.bm25 import open_index as open_arrays
from heedful_envs.bm25 import write_index
from heedful_envs.row_files import RowFile, RowWriter
from heedful_envs.search_qa.retrieval.passages import FORMULA, Found, Passage, queried

VERSION = 2
"""Of the folder's layout, of the terms and of the formula. Another one means another index."""

SUMMARY, PASSAGES = "index.json", "passages"
_TOLD_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class Source:
    """Where passages come from: a name for people, and a hash of what they are read from."""

    name: str
    digest: str

    @property
    def folder(self) -> str:
        """The name of the folder of this corpus' index."""
        return f"{self.digest[:16]}-v{VERSION}"


def build(
    source: Source,
    passages: Iterable[Passage],
    out: Path,
    progress: Callable[[int], None] = lambda passages: None,
) -> Path:
    """The folder of the index under `out`: the one that is there, or a new one. `progress`: passages so far.

    Raises ValueError for a corpus without passages.
    """
    final = out / source.folder
    if final.exists():
        return final
    out.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=out))
    try:
        count = write_index(part, (each.terms for each in _written(part, passages, progress)), FORMULA)
        progress(count)
        if not count:
            raise ValueError(f"Expected passages in {source.name}, found none.")
        summary = {
            "kind": "heedful index",
            "version": VERSION,
            "passages": count,
            "corpus": {"name": source.name, "sha256": source.digest},
            "files": {path.name: path.stat().st_size for path in sorted(part.iterdir())},
        }
        (part / SUMMARY).write_text(json.dumps(summary, indent=2), encoding="utf-8")
        part.chmod(0o755)
        if not final.exists():  # else another build of the same corpus was faster
            part.rename(final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return final


def _written(folder: Path, passages: Iterable[Passage], progress: Callable[[int], None]) -> Iterator[Passage]:
    """Write passages while they are handed on."""
    with RowWriter(folder / PASSAGES) as rows:
        for count, passage in enumerate(passages, 1):
            rows.add({"id": passage.id, "title": passage.title, "text": passage.text})
            yield passage
            if count % _TOLD_EVERY == 0:
                progress(count)


class IndexFolder:
    """An index that was opened. Safe for several threads."""

    def __init__(self, path: Path, summary: dict[str, Any]) -> None:
        self.path, self.summary = path, summary
        self._index = open_arrays(path, summary["passages"])
        self._rows = RowFile(path / PASSAGES)

    def __len__(self) -> int:
        return len(self._index)

    def passage(self, place: int) -> Passage:
        """The passage at a place of the corpus."""
        return Passage(**self._rows[place])

    def search(self, query: str, most: int) -> list[Found]:
        """The best `most` passages, best first."""
        return [Found(self.passage(place), score) for place, score in self._index.best(queried(query), most)]


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


def open_index(path: Path) -> IndexFolder:
    """The index of a folder, opened once in a process. Raises ValueError for what is no whole index of this version."""
    folder = find_index(path)
    stamp = (folder / SUMMARY).stat()
    return _opened(folder, stamp.st_mtime_ns, stamp.st_ino)


@lru_cache(maxsize=8)
def _opened(folder: Path, modified: int, inode: int) -> IndexFolder:
    anew = f"Remove the folder {folder}, and build the index again with heedful index."
    summary = read_json(folder / SUMMARY)
    if not isinstance(summary, dict) or (summary.get("kind"), summary.get("version")) != ("heedful index", VERSION):
        raise ValueError(f"{folder}: expected an index of version {VERSION}, found another. {anew}")
    for name, size in summary["files"].items():
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:  # a mapped file that is too short would end the process
            state = "it is missing" if found is None else f"it has {found:,} bytes"
            raise ValueError(f"{folder / name}: expected {size:,} bytes, but {state}. {anew}")
    return IndexFolder(folder, summary)
