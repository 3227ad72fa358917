"""Parquet files of others: the columns that are used, row by row, with a bound on what a small file may unpack to."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.auditing.logs.records import Faults, Location, Row, Tell, shortened
from heedful.boundary.open_files import refuse_pipes

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

BATCH_ROWS = 64
LEAST_BUDGET = 64 * 2**20
"""Bytes that the rows of any file may take."""
MOST_EXPANSION = 1000
"""Bytes of rows for each byte of the file. Real logs, with each prompt repeated for its group, stay below 200."""


def open_parquet(file: Path) -> pyarrow.parquet.ParquetFile:
    """Open a file without reading its rows. Raises ValueError for one that is cut off or damaged."""
    import pyarrow
    import pyarrow.parquet

    refuse_pipes(file)
    try:
        # pyarrow takes the name of a path for a URI: for `hdfs:a.parquet` it loads libraries. An opened file has none.
        opened = pyarrow.parquet.ParquetFile(pyarrow.OSFile(os.fsencode(file)), buffer_size=2**20, pre_buffer=False)
        _ = opened.schema_arrow.names  # which may be no text
        return opened
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"Expected a whole parquet file at {file}, found one that is cut off or damaged: {shortened(str(error))}. "
            "Restore it, or move it out of the folder."
        ) from error


def parquet_rows(
    file: Path, faults: Faults, tell: Tell, columns: Collection[str] | None = None
) -> Iterator[tuple[Location, Row]]:
    """The rows of a file. `columns`: those that are used; `None` = all that a log can use.

    Of a row group that cannot be read the rest is left out.
    """
    import pyarrow

    with open_parquet(file) as table:
        size, metadata = file.stat().st_size, table.metadata
        kinds = {field.name: field.type for field in table.schema_arrow}
        for name in set(columns or ()) & set(kinds):
            # Without a used column the file's rows would pass for rows that never had it.
            if _is_useless(kinds[name]) or table.schema_arrow.names.count(name) > 1:
                faults.add(Location(file, 0), f"one column of numbers or text as `{name}`", f"{kinds[name]}")
                return
        names = [name for name, kind in kinds.items() if not _is_useless(kind) and (not columns or name in columns)]
        if sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)) > max(
            LEAST_BUDGET, MOST_EXPANSION * size
        ):
            faults.add(
                Location(file, 0), f"rows of at most {MOST_EXPANSION} times the {size:,} bytes of the file", "more"
            )
            return
        number, total = 0, max(1, metadata.num_rows)
        for group in range(table.num_row_groups):
            end = number + metadata.row_group(group).num_rows
            try:
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=names):
                    tell(size * (number + len(batch)) // total - size * number // total)
                    for row in batch.to_pylist():
                        number += 1
                        yield Location(file, number), {name: _without_decimals(value) for name, value in row.items()}
            except (pyarrow.ArrowException, OSError, ValueError) as error:
                faults.add(Location(file, number + 1), "rows that can be read", f"damage: {shortened(str(error))}")
            number = end


def _is_useless(kind: pyarrow.DataType) -> bool:
    """Dates and times are of no use to an audit, and Python holds fewer of them than parquet does."""
    import pyarrow.types

    return bool(pyarrow.types.is_temporal(kind) or pyarrow.types.is_binary(kind))


def _without_decimals(value: Any) -> Any:
    """Decimals, as data bases write them, as numbers: whole ones exactly, since they may be keys."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {name: _without_decimals(each) for name, each in value.items()}
    return [_without_decimals(each) for each in value] if isinstance(value, list | tuple) else value
