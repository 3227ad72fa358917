"""Rows of the files that problems come from, read one at a time. The memory holds one offset per row."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from heedful.boundary.foreign_text import clean
from heedful.boundary.jsontext import parse_json, read_json
from heedful.boundary.open_files import open_file, require_pyarrow

_GROUPS_HELD = 4
_ROWS_AT_ONCE = 64
_BUFFER = 1 << 20


class Rows(Protocol):
    """Rows that can be read one at a time, from any place that holds such."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Mapping[str, Any]: ...

    def __iter__(self) -> Iterator[Mapping[str, Any]]: ...


class JsonLines:
    """The rows of a JSON lines file. Blank lines are skipped. `who`: the environment that errors name."""

    def __init__(self, path: Path, who: str) -> None:
        self._path, self._who = path, who
        self._offsets, self._lines, offset = array("Q"), array("Q"), 0
        with open_file(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    self._offsets.append(offset)
                    self._lines.append(number)
                offset += len(line)

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, row: int) -> Mapping[str, Any]:
        with open_file(self._path) as file:
            return self._read(file, row)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        with open_file(self._path) as file:
            yield from (self._read(file, row) for row in range(len(self)))

    def line(self, row: int) -> int:
        """The number of a row's line in the file, from 1."""
        return self._lines[row]

    def _read(self, file: BinaryIO, row: int) -> Mapping[str, Any]:
        file.seek(self._offsets[row])
        text = file.readline()
        try:
            read: Any = parse_json(text)
            found = "" if isinstance(read, dict) else f"{text[:40]!r}"
        except ValueError as error:
            found = str(error)
        if found:
            hint = " A file that is one JSON list must end in .json." if text.lstrip()[:1] == b"[" else ""
            where = f"row {row + 1} of {self._path}"
            raise ValueError(f"{self._who}: expected a JSON object in {where}, found {found}.{hint}")
        row_read: Mapping[str, Any] = read
        return row_read


class JsonList(list[Mapping[str, Any]]):
    """The rows of a file that is one JSON list of objects. They are held in memory."""

    def __init__(self, path: Path, who: str) -> None:
        try:
            rows = read_json(path)
            found = "" if isinstance(rows, list) else f"{str(rows)[:40]}"
        except ValueError as error:
            found = str(error)
        if found:
            raise ValueError(f"{who}: expected one JSON list of objects in {path}, found {found}. Lines end in .jsonl.")
        super().__init__(rows)


class ParquetRows:
    """The `known` columns of a parquet file's rows, read by row groups. A few groups are kept in memory."""

    def __init__(self, path: Path, who: str, known: Collection[str]) -> None:
        require_pyarrow(path)
        import pyarrow.parquet
        import pyarrow.types

        self._path, self._who = path, who
        with self._whole():
            self._file = pyarrow.parquet.ParquetFile(open_file(path), buffer_size=_BUFFER)
            # No environment reads a time, and Python holds fewer of them than parquet does.
            columns = [column for column in self._file.schema_arrow if not pyarrow.types.is_temporal(column.type)]
            self._columns = [column.name for column in columns if column.name in known]
            metadata = self._file.metadata
            self._starts = array("Q", [0])
            for group in range(metadata.num_row_groups):
                self._starts.append(self._starts[-1] + metadata.row_group(group).num_rows)
        self._group = lru_cache(maxsize=_GROUPS_HELD)(
            lambda group: self._file.read_row_group(group, columns=self._columns)
        )

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> Mapping[str, Any]:
        with self._whole():
            group = next(number for number, start in enumerate(self._starts[1:]) if row < start)
            read: list[Mapping[str, Any]] = self._group(group).slice(row - self._starts[group], 1).to_pylist()
            return read[0]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        with self._whole():
            for batch in self._file.iter_batches(_ROWS_AT_ONCE, columns=self._columns):
                yield from batch.to_pylist()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Turn what the library raises for a damaged file into a sentence."""
        import pyarrow

        try:
            yield
        except (pyarrow.ArrowException, OSError, OverflowError, LookupError, NotImplementedError) as error:
            found = " ".join(clean(str(error)).split())[:200]
            raise ValueError(
                f"{self._who}: expected a parquet file at {self._path}, found one that cannot be read "
                f"({type(error).__name__}: {found}). Write it anew."
            ) from error
