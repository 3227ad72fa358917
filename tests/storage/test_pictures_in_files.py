"""Pictures in rollout files: stored once each, read back equal, and missed in a sentence."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from stored_groups import group

from heedful.storage import read_rollouts, write_rollouts
from heedful.storage.rollouts import COLUMNS, Rollouts, rollout_rows
from heedful.types import Group, Image

SEEN, OTHER = (Image(zlib.compress(bytes([number]) * 9), 8, 4 + number, f"board {number}") for number in (1, 2))


def seeing() -> Group:
    """The group of the other tests, with pictures in the prompts of its first trajectory."""
    original = group()
    first = original.trajectories[0]
    shown: list[tuple[Image, ...]] = [(SEEN,), (OTHER, SEEN)]
    turns = tuple(
        replace(turn, reply=replace(turn.reply, prompt=replace(turn.reply.prompt, images=images)))
        for turn, images in zip(first.turns, shown, strict=True)
    )
    return replace(original, trajectories=(replace(first, turns=turns), *original.trajectories[1:]))


def test_pictures_are_read_back_equal_and_stored_once(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "r", 0, "train", [seeing()], None, "frozen_lake")
    (read,) = read_rollouts(tmp_path / "r").groups
    assert read == seeing()
    assert [image.alt for image in read.trajectories[0].turns[1].reply.prompt.images] == ["board 2", "board 1"]
    rows = pyarrow.parquet.read_table(tmp_path / "r").to_pylist()
    assert [row["new_prompt_images"] for row in rows[:2]] == [[SEEN.digest], [OTHER.digest, SEEN.digest]]
    assert [[file["png"] for file in row["pictures"]] for row in rows[:2]] == [[SEEN.png], [OTHER.png]]


def test_a_file_of_text_is_what_it_always_was(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "r", 0, "train", [group()], None)
    assert pyarrow.parquet.read_table(tmp_path / "r").column_names == list(COLUMNS)


def test_rows_of_pictures_are_plain_json_with_their_digests() -> None:
    rows = rollout_rows(Rollouts(0, "train", "", (seeing(),), None))
    assert json.loads(json.dumps(rows)) == rows
    assert list(rows[0]) == [*COLUMNS, "new_prompt_images"]
    assert rows[0]["new_prompt_images"] == [hashlib.sha256(SEEN.png).hexdigest()[:32]]


@pytest.mark.parametrize("fault", ["missing", "changed", "no column"])
def test_a_missing_picture_is_a_sentence_and_the_rest_can_be_read(tmp_path: Path, fault: str) -> None:
    write_rollouts(tmp_path / "whole", 0, "train", [seeing()], None, "frozen_lake")
    table = pyarrow.parquet.read_table(tmp_path / "whole")
    place = table.column_names.index("pictures")
    if fault == "no column":
        table = table.remove_column(place)
    else:
        files: list[Any] = table.column("pictures").to_pylist()
        files[0] = [] if fault == "missing" else [{**files[0][0], "png": b"other"}]
        table = table.set_column(place, "pictures", pyarrow.array(files, table.schema.field(place).type))
    pyarrow.parquet.write_table(table, tmp_path / "r")
    with pytest.raises(ValueError, match=rf"picture {SEEN.digest} missing or changed .turn 1 of task"):
        read_rollouts(tmp_path / "r")
    assert read_rollouts(tmp_path / "r", replies=False).groups[0].task == seeing().task
