"""The passages of an index on the disk: one JSON object a line, and where each line begins (memory-mapped)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from heedful.boundary import parse_json
from heedful_envs.search_qa.retrieval.passages import Passage

PASSAGES, PLACES = "passages.jsonl", "places.u64"

_FLUSHED_AT = 1 << 16


def write_passages(folder: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
    """Write passages while they are handed on. Both files are whole once the last one was taken."""
    place = 0
    places = np.zeros(_FLUSHED_AT, "<u8")
    count = 1  # the first line begins at 0
    with (folder / PASSAGES).open("wb") as lines, (folder / PLACES).open("wb") as index:
        for passage in passages:
            row = {"id": passage.id, "title": passage.title, "text": passage.text}
            line = (json.dumps(row, ensure_ascii=True) + "\n").encode()
            lines.write(line)
            place += len(line)
            if count == _FLUSHED_AT:
                index.write(places.tobytes())
                count = 0
            places[count] = place
            count += 1
            yield passage
        index.write(places[:count].tobytes())


class DamagedIndex(ValueError):
    """What an index holds, and what it should hold, as a clause."""


class PassageStore:
    """The passages of a folder by their places. Safe for several threads."""

    def __init__(self, folder: Path) -> None:
        self._places = np.memmap(folder / PLACES, "<u8", "r")
        # Read and not mapped: each mapped passage would keep the pages around it in the memory of the process.
        self._lines = (folder / PASSAGES).open("rb")
        self._size = os.fstat(self._lines.fileno()).st_size

    def __len__(self) -> int:
        return len(self._places) - 1

    def __getitem__(self, place: int) -> Passage:
        begin, end = int(self._places[place]), int(self._places[place + 1])
        row: Any = None
        if begin < end <= self._size:
            with suppress(ValueError):
                row = parse_json(os.pread(self._lines.fileno(), end - begin, begin))
        texts: list[Any] = [row.get(name) for name in ("id", "title", "text")] if isinstance(row, dict) else []
        if not texts or not all(isinstance(text, str) for text in texts):
            raise DamagedIndex(f"expected passage {place} in {self._lines.name}, found something else")
        return Passage(*texts)
