"""The columns of rollout files as types of Arrow. A file that is read may be anybody's, so they are demanded of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.boundary.parquet_sizes import (
    budget_of,
    declared_bytes,
    parquet_file,
    refuse_damaged,
    refuse_lack_of_memory,
    text_leaves,
    value_bytes,
)
from heedful.storage.picture_columns import IMAGES, PICTURES, picture_columns

if TYPE_CHECKING:
    import pyarrow


_ROWS = 4096
_ROWS_OF_PICTURES = 16
"""Rows that are read at once. Pictures that repeat are not known before they are read."""


def arrow_types(kinds: Mapping[str, str]) -> dict[str, Any]:
    """The type of each column, by the names of its kind."""
    import pyarrow

    known = {
        "text": pyarrow.string(),
        "int32": pyarrow.int32(),
        "int64": pyarrow.int64(),
        "float64": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "texts": pyarrow.list_(pyarrow.string()),
        "int32s": pyarrow.list_(pyarrow.int32()),
        "float64s": pyarrow.list_(pyarrow.float64()),
        "text to float64": pyarrow.map_(pyarrow.string(), pyarrow.float64()),
    }
    return {name: known[kind] for name, kind in kinds.items()}


def read_table(path: Path, kinds: Mapping[str, str], pictures: bool) -> pyarrow.Table:
    """The columns of these names that a parquet file has, each of its type.

    Raises:
        ValueError: the file cannot be read, unpacks to far more than its size, or has a column of another type.
    """
    import pyarrow

    expected = arrow_types(kinds)
    try:
        opened = parquet_file(path)
        refuse_damaged(opened.metadata)
        if pictures and IMAGES in opened.schema_arrow.names:
            expected |= picture_columns()
        names = [name for name in opened.schema_arrow.names if name in expected]
        budget = budget_of(path.stat().st_size)
        if declared_bytes(opened.metadata, names) > budget:
            raise _too_large(path)
        # Repeated texts stay in their dictionaries until their sizes are known.
        opened = parquet_file(path, read_dictionary=text_leaves(opened, names))
        batches = []
        for batch in opened.iter_batches(_ROWS_OF_PICTURES if PICTURES in names else _ROWS, columns=names):
            budget -= sum(int(value_bytes(column).sum()) for column in batch.columns)
            if budget < 0:
                raise _too_large(path)
            batch.validate(full=True)
            batches.append(batch)
    except (OSError, pyarrow.ArrowException) as error:
        refuse_lack_of_memory(error)
        raise ValueError(
            f"Expected a rollout file (parquet) at {path}, found one that cannot be read: {error}. "
            "Delete it, or restore it from a copy. The other steps of the run do not need it."
        ) from error
    schema = batches[0].schema if batches else pyarrow.schema([opened.schema_arrow.field(name) for name in names])
    table = pyarrow.Table.from_batches(batches, schema)
    columns = [_typed(table.column(name), expected[name], name, path) for name in names]
    types = [(name, expected[name]) for name in names]
    return pyarrow.table(columns, schema=pyarrow.schema(types, opened.schema_arrow.metadata))


def _too_large(path: Path) -> ValueError:
    most = budget_of(path.stat().st_size) / 2**20
    return ValueError(
        f"Expected a rollout file that unpacks to at most {most:,.0f} MiB at {path}, found a larger one. It was not "
        "written by heedful: delete it."
    )


def _typed(column: pyarrow.ChunkedArray, kind: pyarrow.DataType, name: str, path: Path) -> pyarrow.ChunkedArray:
    """The column in its own type. Raises ValueError if its values do not fit, or a list of it has gaps."""
    import pyarrow

    found = str(column.type)
    try:
        typed = column if column.type == kind else column.cast(kind)
        if not pyarrow.types.is_list(kind) or not any(chunk.flatten().null_count for chunk in typed.chunks):
            return typed
        found = "lists with gaps"
    except pyarrow.ArrowException:  # the type that was found says it
        pass
    raise ValueError(
        f"Expected the column `{name}` of {path} as {kind}, found {found[:200]}. Write rollout files with "
        "heedful.storage.write_rollouts only."
    )
