"""A parquet file over whose footer pyarrow ends the process: std::terminate, where a column is asked for by itself.

The fixture has five columns and two rows. One byte of its footer was changed, in the size statistics of a column.
"""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from heedful.auditing.logs.parquet import open_parquet
from heedful.boundary.parquet_sizes import value_bytes
from heedful.envs.common.rows import ParquetRows
from heedful.storage.column_types import read_table

FIXTURE = Path(__file__).parent / "fixtures" / "impossible_histogram.parquet"


@pytest.mark.parametrize(
    "read",
    [
        open_parquet,
        lambda path: ParquetRows(path, "problems", ("step", "prompt")),
        lambda path: read_table(path, {"step": "int64"}, pictures=False),
    ],
    ids=["audit", "problems", "rollouts"],
)
def test_impossible_figures_of_a_column_are_damage_and_end_no_process(read: Any) -> None:
    with pytest.raises(ValueError, match=r"impossible_histogram\.parquet, found .* histogram size mismatch"):
        read(FIXTURE)


@pytest.mark.parametrize(
    "name", ["hdfs:a.parquet", "file:/a.parquet", "~/a.parquet", "s3://a/b.parquet", "[1].parquet"]
)
def test_a_name_that_pyarrow_would_take_for_a_uri_is_the_name_of_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For `hdfs:` pyarrow loads a library of Java, and then `./libhdfs.so`."""
    import pyarrow.parquet

    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    with Path(name).open("wb") as stream:
        pyarrow.parquet.write_table(pyarrow.table({"step": [7]}), stream)
    assert ParquetRows(Path(name), "problems", ("step",))[0] == {"step": 7}
    assert read_table(Path(name), {"step": "int64"}, pictures=False)["step"].to_pylist() == [7]
    with open_parquet(Path(name)) as opened:
        assert opened.metadata.num_rows == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda path: ParquetRows(path, "problems", ("prompt",))[0],
        lambda path: list(ParquetRows(path, "problems", ("prompt",))),
        lambda path: read_table(path, {"prompt": "text"}, pictures=False),
    ],
    ids=["a problem", "problems", "rollouts"],
)
def test_a_text_that_is_no_text_is_damage(read: Any, tmp_path: Path) -> None:
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"prompt": ["a prompt"]}), path, use_dictionary=False, compression="none", write_statistics=False
    )
    path.write_bytes(path.read_bytes().replace(b"a prompt", b"a \xffrompt"))
    with pytest.raises(ValueError, match=r"a\.parquet, found one that cannot be read"):
        read(path)


def test_an_entry_that_a_dictionary_does_not_have_is_damage() -> None:
    import pyarrow

    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 7]), pyarrow.array(["a", "b"]), safe=False)
    with pytest.raises(OSError, match="a row names entry 7 of a dictionary that has 2"):
        value_bytes(column)
