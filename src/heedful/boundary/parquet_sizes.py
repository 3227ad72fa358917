"""The room that the values of a parquet file take, told before they are made: a small file may unpack to very much."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from heedful.boundary.open_files import refuse_pipes

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

LEAST_BUDGET = 64 * 2**20
"""Bytes that the rows of any file may take."""
MOST_EXPANSION = 1000
"""Bytes of rows for each byte of the file. Real logs, with each prompt repeated for its group, stay below 200."""
_NUMBER = 8


def budget_of(size: int, least: int = LEAST_BUDGET) -> int:
    """The bytes that the rows of a file of `size` bytes may take."""
    return max(least, MOST_EXPANSION * size)


def parquet_file(path: Path, **options: Any) -> pyarrow.parquet.ParquetFile:
    """Open a file of parquet. Every file is opened here. Raises OSError or pyarrow's errors.

    pyarrow takes the name of a path for a URI or for something at home: for `hdfs:a.parquet` it loads libraries, also
    from the working directory. An opened file has no name.
    """
    import pyarrow
    import pyarrow.parquet

    refuse_pipes(path)
    with _names_read():
        return pyarrow.parquet.ParquetFile(pyarrow.OSFile(os.fsencode(path)), **options)


def refuse_lack_of_memory(error: Exception) -> None:
    """Raise MemoryError where pyarrow had no room for a thread, which says nothing about the file.

    Room for values is another matter: a damaged file may ask for any amount of it.
    """
    if "Failed to launch worker thread" in str(error):
        raise MemoryError from error


def text_leaves(table: pyarrow.parquet.ParquetFile, names: Collection[str]) -> tuple[str, ...]:
    """Parquet's paths of all texts in these columns that are small dictionaries, which rows repeat.

    A large dictionary would fill memory with its own texts.
    """
    leaves = [table.schema.column(place) for place in range(len(table.schema.names))]
    return tuple(
        leaf.path
        for place, leaf in enumerate(leaves)
        if leaf.logical_type.type == "STRING" and within(leaf.path, names) and _repeats(table.metadata, place)
    )


def declared_bytes(metadata: pyarrow.parquet.FileMetaData, names: Collection[str]) -> int:
    """Bytes of these columns when unpacked, as far as the file's own figures show it."""
    groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
    return sum(declared_group_bytes(group, names) for group in groups)


def declared_group_bytes(group: pyarrow.parquet.RowGroupMetaData, names: Collection[str]) -> int:
    """The same, of one row group."""
    size = 0
    for chunk in (group.column(place) for place in range(group.num_columns)):
        if within(chunk.path_in_schema, names):
            number = 0 if chunk.physical_type == "BYTE_ARRAY" else _NUMBER * chunk.num_values
            size += max(chunk.total_uncompressed_size, number)
    return size


def value_bytes(column: pyarrow.Array) -> npt.NDArray[np.int64]:
    """Bytes of each value of a column, without making it."""
    import pyarrow
    import pyarrow.compute
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        of_each = value_bytes(column.dictionary)
        places = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        if len(of_each) and not 0 <= places.min(initial=0) <= places.max(initial=0) < len(of_each):
            raise OSError(f"a row names entry {places.max()} of a dictionary that has {len(of_each)}")
        return of_each[places] if len(of_each) else np.zeros(len(column), dtype=np.int64)
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        lengths = pyarrow.compute.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths, dtype=np.int64) + _NUMBER
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        # Only these carry offsets into shared values, whose sizes are summed from one offset to the next.
        items = (column.keys, column.items) if types.is_map(kind) else (column.values,)
        sizes = sum((value_bytes(part) for part in items), np.zeros(len(items[0]), dtype=np.int64))
        ends = np.concatenate(([0], np.cumsum(sizes)))
        offsets = column.offsets.to_numpy(zero_copy_only=False)
        return np.asarray(ends[offsets[1:]] - ends[offsets[:-1]] + _NUMBER, dtype=np.int64)
    if types.is_struct(kind):
        return sum((value_bytes(field) for field in column.flatten()), np.full(len(column), _NUMBER))
    return np.full(len(column), _NUMBER * max(1, column.nbytes // _NUMBER // max(1, len(column))))


def within(path: str, names: Collection[str]) -> bool:
    """Whether parquet's path of a leaf belongs to one of these columns."""
    parts = path.split(".")
    return any(".".join(parts[:most]) in names for most in range(1, len(parts) + 1))


def _repeats(metadata: pyarrow.parquet.FileMetaData, place: int) -> bool:
    chunks = [metadata.row_group(group).column(place) for group in range(metadata.num_row_groups)]
    return all(
        chunk.total_uncompressed_size <= LEAST_BUDGET and any("DICTIONARY" in name for name in chunk.encodings)
        for chunk in chunks
    )


class _Unreadable(io.RawIOBase):
    """A file without end, of which nothing can be read."""

    asked = False
    """Whether bytes were asked for."""
    _place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + (0, self._place, 1 << 62)[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, size: int = -1) -> bytes:
        self.asked = True
        return b""


def refuse_damaged(metadata: pyarrow.parquet.FileMetaData) -> None:
    """Raise OSError for names and figures of columns that cannot be. Call it before any other function of this module.

    pyarrow ends the whole process where such a column is asked for by itself, and raises where its rows are to be read.
    So the columns are opened in a file without bytes. They are checked before the first byte is asked for.
    """
    import pyarrow
    import pyarrow.parquet

    source = _Unreadable()
    bare = pyarrow.parquet.ParquetFile(pyarrow.PythonFile(source, mode="r"), metadata=metadata, buffer_size=4096)
    for group in range(metadata.num_row_groups):
        source.asked = False
        try:
            next(bare.iter_batches(1, row_groups=[group]), None)
        except pyarrow.ArrowException:
            continue  # a kind of column that pyarrow has no type for, and that perhaps nobody reads
        except OSError:
            if not source.asked:
                raise
    with _names_read():
        _ = [bare.schema.column(place).path for place in range(len(bare.schema.names))]
        _ = [_paths(metadata.row_group(place)) for place in range(metadata.num_row_groups)]


@contextmanager
def _names_read() -> Iterator[None]:
    """Raise OSError where the name of a column turns out to be no text."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise OSError(f"a column's name is no UTF-8 text ({error})") from error


def _paths(group: pyarrow.parquet.RowGroupMetaData) -> list[str]:
    """The names of the columns, which each row group repeats."""
    return [group.column(place).path_in_schema for place in range(group.num_columns)]
