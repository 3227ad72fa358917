from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_groups import DROPPED, KEPT, broken_group, group, turn

from heedful.storage import DiskFull, Rollouts, read_rollouts, rollout_rows, write_rollouts
from heedful.storage.rollouts import COLUMNS, OF_IDS
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict


def test_what_was_written_is_read_back_equal(tmp_path: Path) -> None:
    groups = (group(0), broken_group(1), group(2, members=5))
    verdicts = (KEPT, DROPPED, Verdict(0.25, "kept", 0.0))
    write_rollouts(tmp_path / "r.parquet", 12, "train", groups, verdicts, "frozen_lake")
    assert read_rollouts(tmp_path / "r.parquet") == Rollouts(12, "train", "frozen_lake", groups, verdicts)


def test_an_evaluation_has_no_verdicts_and_a_step_may_be_empty(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "eval.parquet", 3, "train", [group()], None)
    assert read_rollouts(tmp_path / "eval.parquet").verdicts is None
    write_rollouts(tmp_path / "none.parquet", 4, "val", [], [], "bandit")
    assert read_rollouts(tmp_path / "none.parquet") == Rollouts(4, "val", "bandit", (), ())


def test_equal_groups_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_rollouts(tmp_path / name, 1, "train", [group(0), broken_group(1)], [KEPT, DROPPED], "lake")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_reals = st.floats(allow_nan=False)
_ids = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
_spans = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda ends: Span(min(ends), max(ends)))
_turns = st.builds(
    Turn,
    reply=st.builds(
        Reply,
        prompt=st.builds(Prompt, text=_texts, ids=_ids, restarts=st.booleans(), history=st.integers(0, 9)),
        ids=_ids,
        text=_texts,
        logprobs=st.lists(_reals, max_size=5).map(tuple),
        entropies=st.lists(_reals, max_size=5).map(tuple),
        thought=_spans,
        answer=_spans,
        closed=st.booleans(),
        cut=st.booleans(),
    ),
    rewards=st.dictionaries(_texts, st.floats(-1e6, 1e6), max_size=3),
    actions=st.lists(_texts, max_size=3).map(tuple),
    valid=st.booleans(),
    effect=_texts,
    state=_texts,
)


@st.composite
def _groups(draw: st.DrawFn) -> Group:
    task = Task(
        draw(_texts), draw(st.integers(-(2**63), 2**63 - 1)), "train", tuple(draw(st.lists(_texts, max_size=2))), "any"
    )
    members = draw(st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True))
    trajectories = [
        Trajectory(
            task,
            member,
            tuple(draw(st.lists(_turns, max_size=3))),
            draw(st.sampled_from(Ending)),
            draw(st.none() | st.floats(0, 1)),
            draw(st.none() | st.floats(0, 1)),
            draw(st.integers(0, 2**60)),
            draw(st.floats(0, 2)),
            draw(_texts),
        )
        for member in members
    ]
    return Group(task, tuple(trajectories))


@settings(max_examples=40)
@given(st.lists(_groups(), max_size=3), st.data())
def test_any_rollout_survives_the_round_trip(tmp_path_factory: pytest.TempPathFactory, groups, data) -> None:
    verdict = st.builds(Verdict, st.floats(0, 5), _texts, st.none() | _reals)
    verdicts = data.draw(st.none() | st.lists(verdict, min_size=len(groups), max_size=len(groups)).map(tuple))
    path = tmp_path_factory.mktemp("r") / "r.parquet"
    write_rollouts(path, 0, "train", groups, verdicts, "any")
    assert read_rollouts(path) == Rollouts(0, "train", "any", tuple(groups), verdicts)


@pytest.mark.parametrize(
    ("task_id", "of_file", "read"),
    [
        ("echo-0123456789abcdef", "echo", "echo"),
        ("frozen_lake-0123456789abcdef", "remote", "frozen_lake"),
        ("chain-0123456789abcdef", "", "chain"),
        ("level-17", "maze", "maze"),
        ("level-17", "", ""),
    ],
)
def test_a_task_gets_the_environment_of_its_id_or_else_of_its_file(
    task_id: str, of_file: str, read: str, tmp_path: Path
) -> None:
    task = Task(task_id, 3, "train", environment=read)
    write_rollouts(
        tmp_path / "r", 0, "train", [Group(task, (Trajectory(task, 0, (), Ending.ERROR, None),))], None, of_file
    )
    (found,) = read_rollouts(tmp_path / "r").groups
    assert found.task == task


def test_a_reward_that_is_not_a_number_survives_as_such(tmp_path: Path) -> None:
    original = group(members=1)
    first = dataclasses.replace(original.trajectories[0], turns=(turn(1, {"step": math.nan}),))
    write_rollouts(tmp_path / "r", 0, "train", [Group(original.task, (first,))], None)
    (read,) = read_rollouts(tmp_path / "r").groups
    assert math.isnan(read.trajectories[0].turns[0].rewards["step"])


def test_a_turn_that_is_known_as_text_alone_has_no_ids_in_its_row(tmp_path: Path) -> None:
    nothing = Span(0, 0)
    reply = Reply(Prompt("go", ()), (), "<think>so</think>Up", (), (), nothing, nothing, closed=True, cut=False)
    task = Task("echo-0123456789abcdef", 1, "val", environment="echo")
    groups = [Group(task, (Trajectory(task, 0, (Turn(reply, {}, (), True, "", ""),), Ending.SOLVED, 1.0),))]
    write_rollouts(tmp_path / "r", 0, "val", groups, None, "echo")
    (row,) = pyarrow.parquet.read_table(tmp_path / "r").to_pylist()
    assert {name for name, value in row.items() if value is None} >= set(OF_IDS)  # unknown, which is not empty
    assert (row["reply_text"], row["closed"]) == ("<think>so</think>Up", True)
    assert list(read_rollouts(tmp_path / "r").groups) == groups


def test_rows_are_turns_numbered_from_one_with_the_groups_facts_on_each() -> None:
    rows = rollout_rows(Rollouts(7, "train", "lake", (group(), broken_group(1)), (KEPT, DROPPED)))
    assert [(row["group"], row["member"], row["turn"]) for row in rows] == [
        (0, 0, 1),
        (0, 0, 2),
        (0, 1, 1),
        (1, 3, 0),
        (1, 1, 1),
    ]
    assert all(list(row) == list(COLUMNS) for row in rows)
    second = rows[1]
    assert (second["reward"], second["components"]) == (0.9, {"step": -0.1, "solved": 1.0})
    assert (second["outcome"], second["success"], second["ending"], second["weight"]) == (1.0, True, "solved", 1.0)
    turnless = rows[3]
    assert (turnless["reply_ids"], turnless["reward"], turnless["error"]) == (None, None, "no board: käse")


def test_rows_are_plain_json() -> None:
    rows = rollout_rows(Rollouts(7, "train", "lake", (group(), broken_group(1)), (KEPT, DROPPED)))
    assert json.loads(json.dumps(rows)) == rows


def test_text_that_no_file_can_hold_is_escaped(tmp_path: Path) -> None:
    task = Task("t", 0, "train")
    lost = Group(task, (Trajectory(task, 0, (), Ending.ERROR, None, error="bad name \udc80"),))
    write_rollouts(tmp_path / "r", 0, "train", [lost], None)
    assert read_rollouts(tmp_path / "r").groups[0].trajectories[0].error == r"bad name \udc80"


def test_a_split_with_half_a_letter_is_written(tmp_path: Path) -> None:
    task = Task("a", 1, "\ud800")
    groups = [Group(task, (Trajectory(task, 0, (), Ending.ERROR, None),))]
    write_rollouts(tmp_path / "r.parquet", 1, task.split, groups, None)
    assert read_rollouts(tmp_path / "r.parquet").split == read_rollouts(tmp_path / "r.parquet").groups[0].task.split


def test_a_damaged_or_foreign_file_is_named_with_a_way_out(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "r.parquet"
    with pytest.raises(ValueError, match="Expected a rollout file"):
        read_rollouts(path)
    write_rollouts(path, 0, "train", [group()], [KEPT])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"restore it from a copy"):
        read_rollouts(path)
    pyarrow.parquet.write_table(pyarrow.table({"prompt": ["a"], "step": [1]}), path)
    with pytest.raises(ValueError, match=r"found no 'schema_version'"):
        read_rollouts(path)


def test_a_file_from_before_there_were_windows_restarts_nowhere(tmp_path: Path) -> None:
    import pyarrow.parquet

    path = tmp_path / "r.parquet"
    write_rollouts(path, 12, "train", [group(0), broken_group(1)], None, "frozen_lake")
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).drop(["restarts", "history"]), path)
    assert read_rollouts(path).groups == (group(0), broken_group(1))
    assert read_rollouts(path, replies=False).groups[0].trajectories[0].outcome == 1.0


def _rewritten(path: Path, column: str, values: list[object]) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    index = table.column_names.index(column)
    field = table.schema.field(column)
    pyarrow.parquet.write_table(table.set_column(index, field, pyarrow.array(values, field.type)), path)


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_rollouts(path, 0, "train", [group()], [KEPT])
    _rewritten(path, "schema_version", [1, 2, 1])
    with pytest.raises(ValueError, match="found schema_version 2, which another version of heedful reads"):
        read_rollouts(path)


def test_a_full_disk_keeps_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    path = tmp_path / "r.parquet"
    write_rollouts(path, 0, "train", [group()], [KEPT])
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match=r"is full\. Kept: the earlier r\.parquet .*Free some space, then go on\."):
        write_rollouts(path, 1, "train", [group(1)], [KEPT])
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.parquet"]


PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
KINDS = {
    "text": "text",
    "texts": "list of text",
    "int32s": "list of int32",
    "float64s": "list of float64",
    "text to float64": "map of text to float64",
}


def test_the_page_lists_every_rollout_column_in_order_with_its_type() -> None:
    table = PAGE[PAGE.index("| `schema_version` |") : PAGE.index("The context of turn k")]
    listed = [
        (name, kind)
        for names, kind in re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    ]
    assert listed == [(name, KINDS.get(kind, kind)) for name, kind in COLUMNS.items()]
