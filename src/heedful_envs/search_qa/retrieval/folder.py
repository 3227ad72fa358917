"""An index on the disk: a folder named by the hash of its corpus, built whole or not at all.

Building writes into a hidden folder and renames it at the end. An interrupted build leaves nothing that opens, and the
next build of the same corpus removes what it left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from heedful.boundary import make_folder, read_json
from heedful_envs.search_qa.retrieval.large import LargeFiles, check_installed, write_large
from heedful_envs.search_qa.retrieval.passages import Found, Passage
from heedful_envs.search_qa.retrieval.small import MOST_PASSAGES
from heedful_envs.search_qa.retrieval.small_files import SmallFiles, write_small
from heedful_envs.search_qa.retrieval.store import PASSAGES, PLACES, DamagedIndex, PassageStore, write_passages
from heedful_envs.search_qa.retrieval.terms import queried

Engine = Literal["numpy", "tantivy"]

VERSION = 1
"""Of the folder's layout, of the terms and of the formula. Another one means another index."""

SUMMARY = "index.json"
CHECKED = 256 << 20
"""Bytes. A larger index is opened without reading it all, so it has no checksums."""
_LOCK = "building"
_TOLD_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class Source:
    """Where passages come from: a name for people, and a hash of what they are read from."""

    name: str
    digest: str

    def folder(self, engine: Engine) -> str:
        """The name of the folder of this corpus' index."""
        return f"{self.digest[:16]}-v{VERSION}-{engine}"


def build(
    source: Source,
    passages: Iterable[Passage],
    out: Path,
    engine: Engine,
    progress: Callable[[int], None] = lambda passages: None,
) -> Path:
    """The folder of the index under `out`: the one that is there, or a new one. `progress`: passages so far.

    Raises ValueError for a corpus without passages, or with too many for the engine.
    """
    final = out / source.folder(engine)
    if final.exists():
        open_built(final)
        return final
    if engine == "tantivy":
        check_installed()
    make_folder(out)
    _remove_leftovers(out, final.name)
    part = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=out))
    try:
        with (part / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _write(part, source, passages, engine, progress)
            (part / _LOCK).unlink()
            part.chmod(0o755)
            with contextlib.suppress(OSError):  # another build of the same corpus was faster
                part.rename(final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    if not final.exists():
        raise OSError(f"The index was built, but {part.name} could not be renamed to {final}.")
    return final


def _write(
    part: Path, source: Source, passages: Iterable[Passage], engine: Engine, progress: Callable[[int], None]
) -> None:
    counted = write_passages(part, _counted(passages, engine, progress))
    means: dict[str, float] = {}
    if engine == "tantivy":
        count, means = write_large(part, counted)
    else:
        count = write_small(part, counted)
    if not count:
        raise ValueError(f"Expected passages in {source.name}, found none.")
    files = {str(path.relative_to(part)): path.stat().st_size for path in _files(part) if path.name != _LOCK}
    for name in files:
        with (part / name).open("rb") as file:
            os.fsync(file.fileno())
    summary = {
        "kind": "heedful index",
        "version": VERSION,
        "engine": engine,
        "passages": count,
        "corpus": {"name": source.name, "sha256": source.digest},
        "mean_terms": means,
        "files": files,
        "checksums": _checksums(part, [name for name in files if name not in (PASSAGES, PLACES)]),
    }
    with (part / SUMMARY).open("w", encoding="utf-8") as file:
        json.dump(summary, file, indent=2)
        file.flush()
        os.fsync(file.fileno())


def _counted(passages: Iterable[Passage], engine: Engine, progress: Callable[[int], None]) -> Iterator[Passage]:
    count = 0
    for count, passage in enumerate(passages, 1):
        if engine == "numpy" and count > MOST_PASSAGES:
            raise ValueError(
                f"The index of numpy is built in memory and takes at most {MOST_PASSAGES:,} passages, and there are "
                'more. Install tantivy (pip install "heedful[search]"), and leave --engine numpy out.'
            )
        if count % _TOLD_EVERY == 0:
            progress(count)
        yield passage
    progress(count)


def _checksums(folder: Path, names: Collection[str]) -> dict[str, int]:
    """The checksum of each file by its name: other bytes may be numbers and terms that are possible, too."""
    if sum((folder / name).stat().st_size for name in names) > CHECKED:
        return {}
    return {name: _checksum(folder / name) for name in names}


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found = zlib.crc32(block, found)
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("[!.]*") if path.is_file())


def _remove_leftovers(out: Path, name: str) -> None:
    """Remove what killed builds of the same index have left. A build that still runs holds a lock."""
    for part in out.glob(f".{name}.*"):
        try:
            with (part / _LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(part, ignore_errors=True)
        except OSError:
            continue


class IndexFolder:
    """An index that was opened. Safe for several threads."""

    def __init__(self, path: Path, summary: dict[str, Any]) -> None:
        self.path = path
        self.summary = summary
        self._opened = {path / name: (path / name).stat() for name in summary["files"]}
        self._passages = PassageStore(path)
        count = summary["passages"]
        if len(self._passages) != count:
            raise DamagedIndex(f"expected {count:,} passages, found {len(self._passages):,}")
        self._files: LargeFiles | SmallFiles
        if summary["engine"] == "tantivy":
            check_installed()
            self._refuse_changed()  # tantivy may panic over other bytes, or find other passages
            self._files = LargeFiles(path, self._passages, summary["mean_terms"])  # type: ignore[arg-type]
        else:
            self._files = SmallFiles(path, count)
            self._refuse_changed()

    def _refuse_changed(self) -> None:
        written = self.summary.get("checksums", {})  # an older version wrote none
        if written != _checksums(self.path, written):
            raise DamagedIndex("expected the terms and numbers that were written, found others")

    def _refuse_shorter(self) -> None:
        """The files are mapped. To read what is no longer there would end the process without a word."""
        for path, opened in self._opened.items():
            with contextlib.suppress(FileNotFoundError):  # a removed file stays mapped, and whole
                now = path.stat()
                if os.path.samestat(now, opened) and now.st_size < opened.st_size:
                    raise DamagedIndex(
                        f"expected {opened.st_size:,} bytes in {path.name}, as when it was opened, found "
                        f"{now.st_size:,}"
                    )

    def __len__(self) -> int:
        return len(self._passages)

    def search(self, query: str, most: int) -> list[Found]:
        """The best passages, best first. Raises DamagedIndex where the files hold something else than was written."""
        try:
            self._refuse_shorter()
            best = self._files.best(queried(query), most)
            return [Found(self._passages[place], score) for place, score in best]
        except DamagedIndex as error:
            raise DamagedIndex(f"{self.path}: {error}. {_anew(self.path)}") from error


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


def open_built(folder: Path) -> IndexFolder:
    """The index of a folder that has the name of one. Raises ValueError where it is no whole index."""
    if not (folder / SUMMARY).is_file():
        raise ValueError(f"Expected an index at {folder}, found no {SUMMARY} in it. {_anew(folder)}")
    return open_index(folder)


def _anew(folder: Path) -> str:
    return f"Remove the folder {folder}, and build the index again with heedful index."


def open_index(path: Path) -> IndexFolder:
    """The index of a folder, opened once in a process. Raises ValueError for what is no whole index of this version."""
    folder = find_index(path)
    stamp = (folder / SUMMARY).stat()
    return _opened(folder, stamp.st_mtime_ns, stamp.st_ino)


@lru_cache(maxsize=8)
def _opened(folder: Path, modified: int, inode: int) -> IndexFolder:
    try:
        summary = read_json(folder / SUMMARY)
    except ValueError as error:
        raise ValueError(
            f"{folder / SUMMARY}: expected the summary of an index, found {error}. {_anew(folder)}"
        ) from None
    if not isinstance(summary, dict) or summary.get("kind") != "heedful index":
        raise ValueError(
            f"{folder / SUMMARY}: expected the summary of an index of heedful, found another. {_anew(folder)}"
        )
    if summary.get("version") != VERSION or summary.get("engine") not in ("numpy", "tantivy"):
        raise ValueError(
            f"{folder}: expected an index of version {VERSION}, found version {summary.get('version')!r} by "
            f"{summary.get('engine')!r}. {_anew(folder)}"
        )
    if not _is_whole(summary):
        raise ValueError(
            f"{folder / SUMMARY}: expected files, passages, corpus and mean_terms as heedful index writes them, found "
            f"others. {_anew(folder)}"
        )
    for name, size in summary["files"].items():
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            state = "it is missing" if found is None else f"it has {found:,} bytes"
            raise ValueError(f"{folder / name}: expected {size:,} bytes, but {state}. {_anew(folder)}")
    try:
        return IndexFolder(folder, summary)
    except ValueError as error:  # ours, and what tantivy says
        raise ValueError(f"{folder}: {error}. {_anew(folder)}") from error


def _is_whole(summary: dict[str, Any]) -> bool:
    """Whether the summary has all fields, in their types."""
    files, corpus, means = (summary.get(name) for name in ("files", "corpus", "mean_terms"))
    checks = summary.get("checksums", {})
    if not isinstance(files, dict) or not isinstance(corpus, dict) or not isinstance(means, dict):
        return False
    lengths: list[Any] = [means.get(name) for name in ("title", "text")] if summary["engine"] == "tantivy" else []
    return (
        type(summary.get("passages")) is int
        and all(type(size) is int for size in files.values())
        and isinstance(checks, dict)
        and set(checks) <= set(files)
        and isinstance(corpus.get("name"), str)
        and all(type(length) in (int, float) and 0 <= length < math.inf for length in lengths)
    )
