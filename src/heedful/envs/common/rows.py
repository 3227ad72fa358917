"""Rows of the files that problems come from, read one at a time, and the items that they hold.

The memory holds one offset per row. `Filed` says which rows hold an item, and what is wrong with the others.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

from heedful.boundary.jsontext import expecting, parse_json, read_json
from heedful.boundary.open_files import in_home, open_file, require_pyarrow

Item = TypeVar("Item")

_GROUPS_HELD = 4
_ROWS_AT_ONCE = 64
_BUFFER = 1 << 20
_ROWS_NAMED = 5
_HELD = 2048
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


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

    def _whole(self) -> AbstractContextManager[None]:
        """Turn what the library raises for a damaged file into a sentence."""
        import pyarrow

        wrong = (pyarrow.ArrowException, NotImplementedError)
        return expecting(f"a whole parquet file at {self._path} for {self._who}", "Write it anew.", also=wrong)


class Faulty(ValueError):
    """A row that holds no item, and why, as a clause."""


class Filed(Generic[Item]):
    """The items of a file. Each is checked once, when the file is opened, and read again when it is needed.

    Raises ValueError where rows hold none, unless these are to be skipped.

    Args:
        rows: of the file.
        read: the item of a row. What it raises makes the row faulty.
        what: an item, for people, such as `a question with its answer`.
        each: is handed every item when the file is opened.
    """

    def __init__(
        self,
        who: str,
        name: str,
        rows: Rows,
        read: Callable[[Mapping[str, Any]], Item],
        what: str,
        skip_faulty: bool,
        each: Callable[[Item], None] = lambda item: None,
    ) -> None:
        self._rows, self._reader = rows, read
        self._good = array("L")
        faults: list[str] = []
        self.skipped = 0
        for number, row in enumerate(rows):
            try:
                item = self._item(row)
            except Faulty as error:
                self.skipped += 1
                if len(faults) < _ROWS_NAMED:
                    place = f"line {rows.line(number)}" if isinstance(rows, JsonLines) else f"row {number + 1}"
                    faults.append(f"{place}: {error}")
            else:
                self._good.append(number)
                each(item)
        told = "; ".join(faults) + (f" and {self.skipped - len(faults)} more" if self.skipped > len(faults) else "")
        if not self._good:
            raise ValueError(f"{who}: expected {what} in {name}, found none. {told}")
        if faults and not skip_faulty:
            raise ValueError(
                f"{who}: expected {what} in every row of {name}, found {told}. "
                "Correct them, or leave such rows out with --env.skip-faulty true."
            )
        self._held = lru_cache(maxsize=_HELD)(lambda number: self._item(rows[self._good[number]]))

    def __len__(self) -> int:
        return len(self._good)

    def __getitem__(self, number: int) -> Item:
        return self._held(number)

    def __iter__(self) -> Iterator[Item]:
        return (self._item(self._rows[number]) for number in self._good)

    def _item(self, row: Mapping[str, Any]) -> Item:
        try:
            return self._reader(row)
        except Faulty:
            raise
        except KeyError as error:
            raise Faulty(f"it lacks the column {error}") from None
        except (TypeError, AttributeError, IndexError, ValueError, SyntaxError, RecursionError) as error:
            raise Faulty(f"its columns have another form ({type(error).__name__}: {error})") from None


class Groups:
    """Which keys hang together. The smallest key of a group stands for it."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        if low != high:
            self._above[high] = low

    def root(self, key: int) -> int:
        found = key
        while found in self._above:
            found = self._above[found]
        while key in self._above:  # the next look-up is short
            self._above[key], key = found, self._above[key]
        return found

    def joined(self) -> dict[int, int]:
        """Key -> the smallest of its group. Keys that were joined with no other one are left out."""
        return {key: self.root(key) for pair in list(self._above.items()) for key in pair}


def rows_of(path: Path, who: str, known: Collection[str]) -> Rows:
    """The rows of a .jsonl, .json or .parquet file. `known`: the columns that are read of parquet."""
    if path.suffix == ".parquet":
        return ParquetRows(path, who, known)
    return (JsonList if path.suffix == ".json" else JsonLines)(path, who)


def check_file(who: str, knob: str, path: str, kinds: Sequence[str], others: str = "") -> None:
    """Raise ValueError for a knob that names no file of these kinds. `others`: what it may name instead, for people."""
    place = in_home(path)
    if not place.name.endswith(tuple(kinds)):
        raise ValueError(f"{who}: {knob} must be a file of {' or '.join(kinds)}{others}, but is {path!r}.")
    if not place.is_file():
        raise ValueError(f"{who}: {knob} names the file {path!r}, which does not exist.")


def stamp_of(path: Path) -> tuple[int, int]:
    """What differs once a file is written again. (0, 0) where there is none."""
    return (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else (0, 0)


def text_of(value: Any, what: str = "a value") -> str:
    """A text that can be written as UTF-8. Raises Faulty for anything else. `what` was expected."""
    if not isinstance(value, str):
        raise Faulty(f"{what} was expected as text, and there is {type(value).__name__}")
    if _HALF_A_PAIR.search(value):
        raise Faulty(f"{what} holds half of a surrogate pair, which is no text")
    return value
