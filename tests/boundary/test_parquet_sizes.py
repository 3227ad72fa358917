"""What pyarrow raises for lack of memory is not told as damage of the file."""

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from heedful.auditing.logs import parquet as logs
from heedful.auditing.logs.records import Faults
from heedful.boundary.parquet_sizes import parquet_file, refuse_lack_of_memory

NO_THREAD = OSError("Failed to launch worker thread: Resource temporarily unavailable")


class Starved:
    """A parquet file, of which no row can be read for lack of memory."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._file = parquet_file(path, **options)

    def __enter__(self) -> "Starved":
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def iter_batches(self, *words: Any, **more: Any) -> Any:
        raise NO_THREAD


def test_lack_of_memory_is_no_damage_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow.parquet.write_table(
        pyarrow.table({"schema_version": [1], "prompt": ["a"], "completion": ["b"]}), tmp_path / "a.parquet"
    )
    monkeypatch.setattr(logs, "parquet_file", Starved)
    with pytest.raises(MemoryError):
        list(logs.parquet_rows(tmp_path / "a.parquet", Faults(), lambda told: None))
    with pytest.raises(MemoryError):
        refuse_lack_of_memory(NO_THREAD)
    refuse_lack_of_memory(OSError("malloc of size 10 failed"))  # a damaged file may ask for any amount
