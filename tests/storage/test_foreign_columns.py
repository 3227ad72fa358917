"""Rollout files of others: columns of another type, gaps, and small files that unpack to very much, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
from test_pictures_in_files import seeing

from heedful.storage import RunFolder, read_rollouts, write_rollouts

"""Of all rows, or of the first one."""


def stored(folder: Path) -> Path:
    path = RunFolder(folder).rollouts(0)
    path.parent.mkdir(parents=True)
    write_rollouts(path, 0, "train", [seeing()], None, "frozen_lake")
    return path


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
