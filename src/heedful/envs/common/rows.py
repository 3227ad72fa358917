"""Rows of the files that problems come from, read one at a time. The memory holds one offset per row."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from heedful.configuration.jsontext import parse_json

_GROUPS_HELD = 4
_ROWS_AT_ONCE = 1000
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


def is_writable(text: str) -> bool:
    """Whether a text can be written as UTF-8. JSON may hold half of a surrogate pair, which can not."""
    return not _HALF_A_PAIR.search(text)


class Rows(Protocol):
    """Rows that can be read one at a time, from any place that holds such."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Mapping[str, Any]: ...

    def __iter__(self) -> Iterator[Mapping[str, Any]]: ...


class JsonLines:
    """The rows of a JSON lines file. Blank lines are skipped. `who`: the environment that errors name."""

    def __init__(self, path: Path, who: str) -> None:
        self._path, self._who = path, who
        self._offsets = array("Q")
        with path.open("rb") as file:
            offset = 0
            for line in file:
                if line.strip():
                    self._offsets.append(offset)
                offset += len(line)

    def __len__(self) -> int:
        return len(self._offsets)

    def line(self, row: int) -> int:
        """The number of a row's line in the file, from 1."""
        with self._path.open("rb") as file:
            return file.read(self._offsets[row]).count(b"\n") + 1

    def __getitem__(self, row: int) -> Mapping[str, Any]:
        with self._path.open("rb") as file:
            file.seek(self._offsets[row])
            return self._read(row, file.readline())

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        with self._path.open("rb") as file:
            yield from (self._read(row, line) for row, line in enumerate(line for line in file if line.strip()))

    def _read(self, row: int, line: bytes) -> Mapping[str, Any]:
        try:
            read = parse_json(line)
        except ValueError as error:
            hint = " A file that is one JSON list must end in .json." if line.lstrip()[:1] == b"[" else ""
            raise ValueError(
                f"{self._who}: expected a JSON object in row {row + 1} of {self._path}, found {error}.{hint}"
            ) from error
        if not isinstance(read, dict):
            raise ValueError(
                f"{self._who}: expected a JSON object in row {row + 1} of {self._path}, found {line[:40]!r}."
            )
        return read


class ParquetRows:
    """The `known` columns of a parquet file's rows, read by row groups. A few groups are kept in memory."""

    def __init__(self, path: Path, who: str, known: Collection[str]) -> None:
        import pyarrow
        import pyarrow.parquet

        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{who}: expected a parquet file at {path}, found {error}.") from error
        self._columns = [name for name in self._file.schema_arrow.names if name in known]
        self._starts = array("Q", [0])
        for group in range(self._file.num_row_groups):
            self._starts.append(self._starts[-1] + self._file.metadata.row_group(group).num_rows)
        self._group = lru_cache(maxsize=_GROUPS_HELD)(self._read_group)

    def _read_group(self, group: int) -> Any:
        return self._file.read_row_group(group, columns=self._columns)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> Mapping[str, Any]:
        group = next(number for number, start in enumerate(self._starts[1:]) if row < start)
        rows = self._group(group).slice(row - self._starts[group], 1).to_pylist()
        read: Mapping[str, Any] = rows[0]
        return read

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for batch in self._file.iter_batches(_ROWS_AT_ONCE, columns=self._columns):
            yield from batch.to_pylist()


class JsonList:
    """The rows of a file that is one JSON list of objects. The memory holds where each begins, after one reading."""

    def __init__(self, path: Path, who: str) -> None:
        self._path, self._who = path, who
        self._offsets = array("Q")
        # Every byte is a character of this encoding, so that places in the text are places in the file.
        text = path.read_bytes().decode("latin-1")
        decoder = json.JSONDecoder()
        place = _next(text, 3 if text.startswith("\xef\xbb\xbf") else 0)
        if text[place : place + 1] != "[":
            raise ValueError(f"{who}: expected one JSON list in {path}, found {text[:40]!r}. Lines end in .jsonl.")
        place = _next(text, place + 1)
        while text[place : place + 1] != "]":
            self._offsets.append(place)
            try:
                place = _next(text, decoder.raw_decode(text, place)[1])
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{who}: expected JSON in row {len(self._offsets)} of {path}, found {error}."
                ) from None
            if text[place : place + 1] == ",":
                place = _next(text, place + 1)
            elif text[place : place + 1] != "]":
                raise ValueError(
                    f"{who}: expected a comma or the end of the list after row {len(self._offsets)} of {path}."
                )
        self._count = len(self._offsets)
        self._offsets.append(place)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> Mapping[str, Any]:
        with self._path.open("rb") as file:
            file.seek(self._offsets[row])
            return self._read(row, file.read(self._offsets[row + 1] - self._offsets[row]))

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self[row] for row in range(len(self)))

    def _read(self, row: int, text: bytes) -> Mapping[str, Any]:
        try:
            read = parse_json(text.rstrip().removesuffix(b","))
        except ValueError as error:
            raise ValueError(
                f"{self._who}: expected a JSON object in row {row + 1} of {self._path}, found {error}."
            ) from error
        if not isinstance(read, dict):
            raise ValueError(
                f"{self._who}: expected a JSON object in row {row + 1} of {self._path}, found {text[:40]!r}."
            )
        return read


def _next(text: str, place: int) -> int:
    """The place of the next character that is no white space."""
    while text[place : place + 1] in (" ", "\t", "\n", "\r") and place < len(text):
        place += 1
    return place
