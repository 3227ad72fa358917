"""Parquet files of others: the columns that are used, row by row, with bounds on what a small file may unpack to.

Texts stay in parquet's dictionaries until their row is made, so a text that is repeated a million times is held once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from heedful.auditing.logs.records import Faults, Location, Misfit, Row, Tell, shortened
from heedful.boundary.parquet_sizes import (
    MOST_EXPANSION,
    budget_of,
    declared_bytes,
    parquet_file,
    refuse_damaged,
    refuse_lack_of_memory,
    text_leaves,
    value_bytes,
)

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

BATCH_ROWS = 64
LONGEST_ROW = 64 * 2**20
"""Bytes. A larger row is left out, and no batch of rows takes more."""
_BUFFER = 2**20
_BYTES_PER_ROW = 64
_DAMAGE = "rows that can be read"


def open_parquet(file: Path, texts: Sequence[str] = ()) -> pyarrow.parquet.ParquetFile:
    """Open a file without reading its rows. `texts`: the paths of columns to be kept as dictionaries.

    Raises:
        ValueError: it is cut off or damaged.
    """
    import pyarrow

    try:
        # Without a buffer size a whole column of a row group is read at once.
        opened = parquet_file(file, buffer_size=_BUFFER, pre_buffer=False, read_dictionary=list(texts))
        refuse_damaged(opened.metadata)
        return opened
    except (pyarrow.ArrowException, OSError) as error:
        refuse_lack_of_memory(error)
        raise ValueError(
            f"Expected a whole parquet file at {file}, found one that is cut off or damaged: {shortened(str(error))}. "
            "Restore it, or move it out of the folder."
        ) from error


def parquet_rows(
    file: Path, faults: Faults, tell: Tell, columns: Collection[str] | None = None
) -> Iterator[tuple[Location, Row]]:
    """The rows of a file. `columns`: those that are used; `None` = all that a log can use, as far as they can be read.

    A row is left out where a value of a used column cannot be read. Of a damaged row group the rest is left out.
    """
    import pyarrow

    with open_parquet(file) as opened:
        chosen = _Columns.of(opened, columns)
        misfit = _misfit(opened, columns or ())
    if misfit is not None:
        faults.add(Location(file, 0), misfit.expected, misfit.found)
        return
    size = file.stat().st_size
    budget = budget_of(size, LONGEST_ROW)
    with open_parquet(file, chosen.texts) as table:
        total, number = max(1, table.metadata.num_rows), 0
        if (declared := declared_bytes(table.metadata, chosen.names)) > budget:
            _refuse(faults, Location(file, 0), size, declared)
            return
        for group in range(table.num_row_groups):
            end = number + table.metadata.row_group(group).num_rows
            try:
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(chosen.names)):
                    tell(size * (number + len(batch)) // total - size * number // total)
                    sizes = sum((value_bytes(column) for column in batch.columns), np.full(len(batch), _BYTES_PER_ROW))
                    budget -= int(sizes.sum())
                    if budget < 0:
                        _refuse(faults, Location(file, number + 1), size, None)
                        return
                    yield from _rows_of_batch(batch, sizes, Location(file, number), faults, columns is not None)
                    number += len(batch)
            except (pyarrow.ArrowException, OSError) as error:
                refuse_lack_of_memory(error)
                faults.add(Location(file, number + 1), _DAMAGE, f"damage: {shortened(str(error))}")
            number = end


def _refuse(faults: Faults, place: Location, size: int, declared: int | None) -> None:
    found = "more; the rest of it is left out" if declared is None else f"{declared / 2**20:,.0f} MiB"
    faults.add(place, f"rows of at most {MOST_EXPANSION} times the {size:,} bytes of the file", found)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns that are read."""

    names: tuple[str, ...]
    texts: tuple[str, ...]
    """Parquet's paths of all texts in them."""

    @classmethod
    def of(cls, table: pyarrow.parquet.ParquetFile, wanted: Collection[str] | None) -> _Columns:
        there = [field.name for field in table.schema_arrow if not _is_useless(field.type)]
        names = tuple(dict.fromkeys(name for name in there if wanted is None or name in wanted))
        return cls(names, text_leaves(table, names))


def _is_useless(kind: pyarrow.DataType) -> bool:
    """Dates and times are of no use to an audit, and Python holds fewer of them than parquet does."""
    import pyarrow.types

    return bool(pyarrow.types.is_temporal(kind) or pyarrow.types.is_binary(kind))


def _misfit(table: pyarrow.parquet.ParquetFile, used: Collection[str]) -> Misfit | None:
    """What keeps a used column from being read. Without it the file's rows would pass for rows without this column."""
    fields = [field for field in table.schema_arrow if field.name in used]
    for field in fields:
        if _is_useless(field.type):
            return Misfit(f"numbers or text as `{field.name}`", f"a column of {field.type}")
        if (count := sum(other.name == field.name for other in fields)) > 1:
            return Misfit(f"one column named `{field.name}`", f"{count}")
    return None


def _rows_of_batch(
    batch: pyarrow.RecordBatch, sizes: npt.NDArray[np.int64], before: Location, faults: Faults, strict: bool
) -> Iterator[tuple[Location, Row]]:
    """The rows of a batch, in pieces of at most `LONGEST_ROW` bytes. `before`: the place of the row before them."""
    start = 0
    while start < len(batch):
        fitting = int(np.searchsorted(np.cumsum(sizes[start:]), LONGEST_ROW, side="right"))
        if fitting == 0:
            place = Location(before.file, before.line + start + 1)
            faults.add(place, f"a row of at most {LONGEST_ROW >> 20} MiB", f"{sizes[start] >> 20:,} MiB")
            start += 1
            continue
        values = {
            name: _plain(_values(column.slice(start, fitting)), column.type)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        for offset in range(fitting):
            place = Location(before.file, before.line + start + offset + 1)
            row = {name: column[offset] for name, column in values.items()}
            bad = [name for name, value in row.items() if isinstance(value, _Unreadable)]
            if bad and strict:
                faults.add(place, f"a value that can be read in `{bad[0]}`", row[bad[0]].reason)
            else:
                yield place, {name: value for name, value in row.items() if name not in bad}
        start += fitting


def _plain(values: list[Any], kind: pyarrow.DataType) -> list[Any]:
    """Values with decimals, as data bases write them, as numbers: whole ones exactly, since they may be keys."""
    return list(map(_without_decimals, values)) if "decimal" in str(kind) else values


def _without_decimals(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {name: _without_decimals(each) for name, each in value.items()}
    return [_without_decimals(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Stands for a value that Python cannot hold."""

    reason: str


def _values(column: pyarrow.Array) -> list[Any]:
    """The values of a column. If one of them cannot be read, the others still are."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, LookupError, NotImplementedError):
        return [_value(column, place) for place in range(len(column))]


def _value(column: pyarrow.Array, place: int) -> Any:
    try:
        return column[place].as_py()
    except (ValueError, OverflowError, LookupError, NotImplementedError) as error:
        return _Unreadable(f"{type(error).__name__}: {shortened(str(error))}")
