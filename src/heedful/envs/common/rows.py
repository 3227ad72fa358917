"""Rows of the files that problems come from, read one at a time. The memory holds one offset per row."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from heedful.boundary.foreign_text import clean
from heedful.boundary.jsontext import LARGEST, parse_json
from heedful.boundary.open_files import open_file, read_up_to
from heedful.boundary.parquet_sizes import (
    MOST_EXPANSION,
    budget_of,
    declared_bytes,
    declared_group_bytes,
    parquet_file,
    refuse_damaged,
    refuse_lack_of_memory,
    text_leaves,
    value_bytes,
)

LONGEST_ROW = 64 << 20
"""Bytes of a row of a parquet file."""
LONGEST_LINE = 256 << 20
"""Bytes of a line of a JSON lines file."""
LARGEST_GROUP = 1 << 30
"""Bytes of a row group of a parquet file, which is held whole."""

_GROUPS_HELD = 4
_ROWS_AT_ONCE = 64
_BUFFER = 1 << 20
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
        offset = 0
        for line in self._lines():
            if line.strip():
                self._offsets.append(offset)
            offset += len(line)

    def __len__(self) -> int:
        return len(self._offsets)

    def line(self, row: int) -> int:
        """The number of a row's line in the file, from 1."""
        with open_file(self._path) as file:
            left, lines = self._offsets[row], 1
            while left and (piece := file.read(min(left, _BUFFER))):
                left, lines = left - len(piece), lines + piece.count(b"\n")
        return lines

    def __getitem__(self, row: int) -> Mapping[str, Any]:
        with open_file(self._path) as file:
            file.seek(self._offsets[row])
            return self._read(row, file.readline(LONGEST_LINE))

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        yield from (self._read(row, line) for row, line in enumerate(line for line in self._lines() if line.strip()))

    def _lines(self) -> Iterator[bytes]:
        """All lines. Raises ValueError for one that is too long, before it is read whole."""
        with open_file(self._path) as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    raise ValueError(
                        f"{self._who}: expected lines of at most {LONGEST_LINE >> 20} MiB in {self._path}, found a "
                        f"longer one (line {number}). Write one row a line, or leave this one out."
                    )
                yield line

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


_OF_DAMAGE = (OverflowError, LookupError, NotImplementedError, UnicodeDecodeError)
"""What pyarrow raises for values of a damaged file, beside errors of its own."""


class ParquetRows:
    """The `known` columns of a parquet file's rows, read by row groups. A few groups are kept in memory.

    Texts stay in parquet's dictionaries until their row is made. A file that unpacks to far more than its size is
    refused, with a ValueError, as one that is damaged.
    """

    def __init__(self, path: Path, who: str, known: Collection[str]) -> None:
        import pyarrow.types

        self._path, self._who, self._size = path, who, path.stat().st_size
        with self._whole():
            with parquet_file(path) as file:
                refuse_damaged(file.metadata)
                # No environment reads a time, and Python holds fewer of them than parquet does.
                schema = [column for column in file.schema_arrow if not pyarrow.types.is_temporal(column.type)]
                self._columns = [name for name in dict.fromkeys(column.name for column in schema) if name in known]
                texts = list(text_leaves(file, self._columns))
            # Without a buffer size a whole column of a row group is read at once.
            self._file = parquet_file(path, buffer_size=_BUFFER, pre_buffer=False, read_dictionary=texts)
            metadata = self._file.metadata
            if (declared := declared_bytes(metadata, self._columns)) > budget_of(self._size):
                raise self._too_large(declared)
            self._starts = array("Q", [0])
            for group in range(metadata.num_row_groups):
                if (held := declared_group_bytes(metadata.row_group(group), self._columns)) > LARGEST_GROUP:
                    raise ValueError(
                        f"{who}: expected row groups of at most {LARGEST_GROUP >> 20:,} MiB in {path}, found one of "
                        f"{held >> 20:,} MiB. Write the file with smaller ones (row_group_size)."
                    )
                self._starts.append(self._starts[-1] + metadata.row_group(group).num_rows)
        self._group = lru_cache(maxsize=_GROUPS_HELD)(self._read_group)

    def _read_group(self, group: int) -> Any:
        return self._file.read_row_group(group, columns=self._columns)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> Mapping[str, Any]:
        with self._whole():
            group = next(number for number, start in enumerate(self._starts[1:]) if row < start)
            return _made(self._group(group).slice(row - self._starts[group], 1))[0]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        left, before = budget_of(self._size), 0
        with self._whole():
            for batch in self._file.iter_batches(_ROWS_AT_ONCE, columns=self._columns):
                sizes = sum((value_bytes(column) for column in batch.columns), np.zeros(len(batch), np.int64))
                left -= int(sizes.sum())
                if left < 0:
                    raise self._too_large(None)
                if sizes.max(initial=0) > LONGEST_ROW:
                    raise ValueError(
                        f"{self._who}: expected rows of at most {LONGEST_ROW >> 20} MiB in {self._path}, found row "
                        f"{before + int(sizes.argmax()) + 1} of {int(sizes.max()) >> 20:,} MiB."
                    )
                step = 1 if sizes.sum() > LONGEST_ROW else len(batch)  # a batch may repeat a large text
                for place in range(0, len(batch), step):
                    yield from _made(batch.slice(place, step))
                before += len(batch)

    def _too_large(self, found: int | None) -> ValueError:
        return ValueError(
            f"{self._who}: expected rows of at most {MOST_EXPANSION:,} times the {self._size:,} bytes of {self._path}, "
            f"found {'more' if found is None else f'{found >> 20:,} MiB'}. Write the file anew, without repetitions."
        )

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Turn what the library raises for a damaged file into a sentence."""
        import pyarrow

        try:
            yield
        except (pyarrow.ArrowException, OSError, *_OF_DAMAGE) as error:
            refuse_lack_of_memory(error)
            found = " ".join(clean(str(error)).split())[:200]
            raise ValueError(
                f"{self._who}: expected a parquet file at {self._path}, found one that cannot be read "
                f"({type(error).__name__}: {found}). Write it anew."
            ) from error


def _made(rows: Any) -> list[Mapping[str, Any]]:
    """Rows of Arrow as Python's. Raises OSError for a value that Python cannot hold."""
    import pyarrow

    try:
        read: list[Mapping[str, Any]] = rows.to_pylist()
    except ValueError as error:
        if isinstance(error, pyarrow.ArrowException):
            raise
        raise OSError(str(error)) from error
    return read


class JsonList:
    """The rows of a file that is one JSON list of objects. The memory holds where each begins, after one reading."""

    def __init__(self, path: Path, who: str) -> None:
        self._path, self._who = path, who
        self._offsets = array("Q")
        # Every byte is a character of this encoding, so that places in the text are places in the file.
        with open_file(path) as file:
            text = read_up_to(file, LARGEST + 1).decode("latin-1")
        if len(text) > LARGEST:
            raise ValueError(
                f"{who}: expected at most {LARGEST >> 20} MiB in {path}, which is one JSON list, found more. Write one "
                "row a line, in a file that ends in .jsonl."
            )
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
        with open_file(self._path) as file:
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
