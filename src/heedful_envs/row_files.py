"""Rows as JSON lines, with the places where they begin: read one at a time, from a file of any size. Mapped arrays.
Folders that appear whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from heedful.boundary import parse_json


def mapped_array(path: Path) -> Any:
    """The array of a `.npy` file, memory-mapped, so that processes share it."""
    return np.load(path, mmap_mode="r", allow_pickle=False)


@contextmanager
def whole_folder(final: Path) -> Iterator[Path]:
    """A hidden folder to write into, which becomes `final` at the end of the context. An error leaves nothing."""
    final.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        yield part
        part.chmod(0o755)
        if not final.exists() or not any(final.iterdir()):  # else another process was faster
            part.rename(final)
    finally:
        shutil.rmtree(part, ignore_errors=True)


class RowWriter:
    """Writes the rows of a new file. Use it as a context: the places are written at its end."""

    def __init__(self, path: Path) -> None:
        """`path` without an ending: `.jsonl` holds the rows, `.npy` where each begins and the last one ends."""
        self._path, self._begins = path, array("Q", [0])
        self._lines = path.with_suffix(".jsonl").open("wb")

    def __len__(self) -> int:
        return len(self._begins) - 1

    def add(self, row: Any) -> None:
        self._begins.append(self._begins[-1] + self._lines.write(json.dumps(row).encode() + b"\n"))

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._lines.close()
        np.save(self._path.with_suffix(".npy"), np.array(self._begins, np.uint64))


class RowFile:
    """The rows of such a file by their places. Safe for several threads."""

    def __init__(self, path: Path) -> None:
        self._begins = mapped_array(path.with_suffix(".npy"))
        # Read and not mapped: each mapped row would keep the pages around it in the memory of the process.
        self._lines = path.with_suffix(".jsonl").open("rb")

    def __len__(self) -> int:
        return len(self._begins) - 1

    def __getitem__(self, place: int) -> Any:
        begin, end = int(self._begins[place]), int(self._begins[place + 1])
        return parse_json(os.pread(self._lines.fileno(), end - begin, begin))
