"""Rollout files of others: columns of another type, gaps, and small files that unpack to very much, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from test_pictures_in_files import seeing

from heedful.report.embedding import inert_json
from heedful.report.trajectories import Sample, Tags, trajectory_sample
from heedful.storage import RunFolder, read_rollouts, write_rollouts

FILE = {"digest": "x", "png": b"1", "width": 1, "height": 1, "alt": "a"}
ODD: list[Any] = [
    *(None, True, -1, 2**62, float("nan"), "x", b"\xff"),
    *([1], ["a"], [None], {"a": 1}, [dict.fromkeys(FILE)], [{"digest": "x"}], [None, FILE]),
]
"""Of all rows, or of the first one."""


class Ignored:
    """Takes what a page says of files that it left out."""

    def readable(self, read: Callable[[Path], Any], paths: list[Path]) -> list[tuple[Path, Any]]:
        return [(path, read(path)) for path in paths]


def page_of(path: Path) -> Sample:
    sample = trajectory_sample(RunFolder(path), Tags(), Ignored())  # type: ignore[arg-type]
    assert inert_json([sample.steps, sample.pictures])
    return sample


def with_column(table: pyarrow.Table, name: str, values: list[Any]) -> pyarrow.Table | None:
    try:
        column = pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):  # no column can hold these values together
        return None
    return table.set_column(table.column_names.index(name), name, column)


def stored(folder: Path) -> Path:
    path = RunFolder(folder).rollouts(0)
    path.parent.mkdir(parents=True)
    write_rollouts(path, 0, "train", [seeing()], None, "frozen_lake")
    return path


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.proof)])
def test_a_column_of_any_other_type_is_read_or_refused_in_a_sentence(tmp_path: Path, every: int) -> None:
    """What is read can be shown on a page. `every`: one of so many cases is tried, each column with some."""
    path = stored(tmp_path)
    table = pyarrow.parquet.read_table(path)
    read, refusals = 0, list[str]()
    cases = [(odd, alone) for odd in ODD for alone in (True, False)]
    for place, name in enumerate(table.column_names):
        own = table.column(name).to_pylist()
        for odd, alone in cases[place % every :: every]:
            changed = with_column(table, name, [odd, *own[1:]] if alone else [odd] * len(own))
            if changed is None:
                continue
            pyarrow.parquet.write_table(changed, path)
            try:
                page_of(tmp_path)
                read += 1
            except ValueError as refusal:
                refusals.append(str(refusal))
    assert read > 40 // every
    assert len(refusals) > 400 // every
    assert [said for said in refusals if str(path) not in said or not said.startswith("Expected ")] == []


def test_a_column_of_an_equal_meaning_is_read(tmp_path: Path) -> None:
    path = stored(tmp_path)
    table = pyarrow.parquet.read_table(path)
    texts = table.column("reply_text").cast(pyarrow.large_string())
    members = table.column("member").cast(pyarrow.int64())
    before = read_rollouts(path)
    table = table.set_column(table.column_names.index("reply_text"), "reply_text", texts)
    table = table.set_column(table.column_names.index("member"), "member", members)
    pyarrow.parquet.write_table(table.append_column("mine", [[1] * len(table)]), path)
    assert read_rollouts(path).groups == before.groups


BOMBS: dict[str, Callable[[], dict[str, Any]]] = {
    "one text for all rows": lambda: {"reply_text": pyarrow.DictionaryArray.from_arrays([0] * 300, ["x" * 2**20])},
    "one number for all ids": lambda: {"reply_ids": pyarrow.array([[7] * 10**7] + [[]] * 299)},
    "one picture for all rows": lambda: {"pictures": pyarrow.array([[FILE | {"png": bytes(2**20)}]] * 300)},
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_small_file_cannot_fill_the_memory(tmp_path: Path, bomb: Callable[[], dict[str, Any]]) -> None:
    path = stored(tmp_path)
    table = pyarrow.parquet.read_table(path).take([0] * 300)
    for name, column in bomb().items():
        table = table.set_column(table.column_names.index(name), name, column)
    pyarrow.parquet.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 2**17
    del table, column
    pool = pyarrow.default_memory_pool()
    pool.release_unused()
    before = pool.bytes_allocated()
    with pytest.raises(ValueError, match=r"unpacks to at most 64 MiB at .*, found a larger one"):
        read_rollouts(path)
    assert pool.bytes_allocated() - before < 2**24
