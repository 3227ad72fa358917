"""One bad row costs itself, with its file, line and reason, and never the audit."""

import copy
import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import foreign_logs as logs
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from audit_watching import read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.auditing import AuditSettings, open_log
from heedful.auditing.measure import judged, step_metrics
from heedful.auditing.steps import LoggedStep
from heedful.storage.rollouts import Rollouts, rollout_rows
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

ROWS: dict[str, Callable[[], list[logs.Row]]] = {
    "verl rollouts": lambda: logs.verl_rows(1),
    "TRL completions": lambda: logs.trl_rows(1),
    "RAGEN trajectories": logs.ragen_rows,
    "verifiers traces": logs.trace_rows,
    "verifiers results": logs.result_rows,
    "heedful rollouts": logs.plain_rows,
    "numbered completions": lambda: logs.numbered_rows(1, 1),
}
"""Format -> the rows of one step, six episodes in two groups."""


def whole_own_rows() -> list[logs.Row]:
    """Our own rows with all their columns."""
    prompt, spans = Prompt("look", (1, 2)), (Span(0, 1), Span(2, 3))
    groups = []
    for name, rewards in zip(logs.PROMPTS, logs.REWARDS, strict=True):
        task = Task(name, 1, "train", environment="walk")
        members = []
        for member, reward in enumerate(rewards):
            reply = Reply(prompt, (3, 4, 5), logs.reply(0, member), (-0.5,) * 3, (0.1,) * 3, *spans, True, False)
            turn = Turn(reply, {"goal": reward}, ("up",), True, "", "")
            members.append(Trajectory(task, member, (turn,), Ending.SOLVED, 1.0))
        groups.append(Group(task, tuple(members)))
    return rollout_rows(Rollouts(0, "train", "walk", tuple(groups), (Verdict(1.0, "kept", 0.5),) * 2))


def measured(log: Any, steps: list[LoggedStep]) -> None:
    """What needs no model, of every step."""
    for step in steps:
        step_metrics(step, log.on)
        judged(step.groups, log.tags, None, np.random.default_rng(0))


def write_raw(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def encoded(rows: list[logs.Row]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


# Lines ----------------------------------------------------------------------------------------------------------------

BAD_LINES = [
    (b'"score": 1.0', b'"score": 1' + b"0" * 400, "a number from -1e+30 to 1e+30 as `score`"),
    (b'"score": 1.0', b'"score": 1' + b"0" * 5000, "a JSON object, found "),
    (b'"score": 1.0', b'"score": Infinity', "a number from -1e+30 to 1e+30 as `score`, found float inf"),
    (b'"score": 1.0', b'"score": 1e300', "a number from -1e+30 to 1e+30 as `score`, found float 1e+300"),
    (b'"step": 1', b'"step": 1' + b"0" * 30, "a whole number of at most 64 bits as `step`"),
    (b'"step": 1', b'"step": -1', "a step from 0 to 1,000,000,000,000,000 as `step`, found int -1"),
    (b'"step": 1', b'"step": 1' + b"0" * 18, "a step from 0 to 1,000,000,000,000,000 as `step`"),
    (b"go to 3", b"go to \xff", "a JSON object, found bytes that are no UTF-8 text"),
    (b"{", b"\0{", "a JSON object, found text that is not JSON"),
    (b'"gts": "3"', b'"gts": ' + b"[" * 10**5 + b"]" * 10**5, "a JSON object, found JSON that is nested too deep"),
]


@pytest.mark.parametrize(("good", "bad", "reason"), BAD_LINES)
def test_a_bad_line_is_lost_with_its_place_and_its_reason(tmp_path: Path, good: bytes, bad: bytes, reason: str) -> None:
    lines = encoded(logs.verl_rows(1))
    lines[0] = lines[0].replace(good, bad, 1)
    assert bad in lines[0]
    log, steps, faults = read(write_raw(tmp_path / "1.jsonl", lines))
    assert (faults.count, sum(step.episodes for step in steps)) == (1, 5)
    assert str(faults.kept[0]).startswith(f"1.jsonl, line 1: expected {reason}")
    assert len(str(faults.kept[0])) < 400
    measured(log, steps)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"gts": "3"', b'"gts": 1' + b"0" * 400),
        (b'"gts": "3"', b'"gts": 1e999'),
    ],
)
def test_a_bad_value_in_a_column_that_is_not_read_costs_nothing(tmp_path: Path, good: bytes, bad: bytes) -> None:
    lines = encoded(logs.verl_rows(1))
    lines[0] = lines[0].replace(good, bad, 1)
    _, steps, faults = read(write_raw(tmp_path / "1.jsonl", lines))
    assert (faults.count, sum(step.episodes for step in steps)) == (0, 6)


def test_a_file_of_lines_may_begin_with_bytes_of_a_crash(tmp_path: Path) -> None:
    lines = [b"\0" * 3000, *encoded(logs.verl_rows(1))]
    _, steps, faults = read(write_raw(tmp_path / "1.jsonl", lines))
    assert (faults.count, sum(step.episodes for step in steps)) == (1, 6)


# Parquet --------------------------------------------------------------------------------------------------------------


def test_a_used_column_of_times_or_a_second_one_of_its_name_costs_the_file(tmp_path: Path) -> None:
    good = pyarrow.Table.from_pylist(logs.trl_rows(1))
    when = pyarrow.array([datetime.datetime(2026, 3, 29)] * len(good), pyarrow.timestamp("us", "Europe/Berlin"))
    place = good.column_names.index("step")
    tables = {1: good, 2: good.set_column(place, "step", when), 3: good.append_column("prompt", good["prompt"])}
    for number, table in tables.items():
        pyarrow.parquet.write_table(table, tmp_path / f"completions_{number}.parquet")
    _, (step,), faults = read(tmp_path)
    assert step.episodes == len(good)
    assert [(fault.place.file.name, fault.expected, fault.found) for fault in faults.kept] == [
        ("completions_2.parquet", "one column of numbers or text as `step`", "timestamp[us, tz=Europe/Berlin]"),
        ("completions_3.parquet", "one column of numbers or text as `prompt`", "string"),
    ]


GROUPS = [7, 7.0, "7", 7, True, [7]]
GROUPED: dict[str, Callable[[logs.Row, Any], logs.Row]] = {
    "RAGEN trajectories": lambda row, group: {**row, "metadata": {**row["metadata"], "group_id": group}},
    "verifiers traces": lambda row, group: {**row, "group": {"id": group}},
    "verifiers results": lambda row, group: {**row, "example_id": group},
    "heedful rollouts": lambda row, group: {**row, "group": group},
}
"""Format -> a row with this group."""


@pytest.mark.parametrize("kind", GROUPED)
def test_a_whole_number_names_one_group_in_every_type_and_other_types_cost_their_row(tmp_path: Path, kind: str) -> None:
    rows = [GROUPED[kind](row, group) for row, group in zip(ROWS[kind](), GROUPS, strict=True)]
    _, (step,), faults = read(logs.write_lines(tmp_path / "log_1.jsonl", rows))
    assert [len(group.trajectories) for group in step.groups] == [4]
    assert [fault.found for fault in faults.kept] == ["bool True", "list [7]"]


def trl_table(**columns: pyarrow.Array) -> pyarrow.Table:
    table = pyarrow.Table.from_pylist(logs.trl_rows(1))
    for name, values in columns.items():
        table = table.append_column(name, values)
    return table


UNREAD = {
    "a date that Python cannot hold": pyarrow.array([2**60] * 6, pyarrow.timestamp("ms")),
    "a time zone that nobody knows": pyarrow.array([0] * 6, pyarrow.timestamp("s", "Mars/Olympus")),
    "a date": pyarrow.array([datetime.date(2026, 1, 1)] * 6),
    "bytes": pyarrow.array([b"\xff"] * 6),
}


@pytest.mark.parametrize("column", UNREAD.values(), ids=UNREAD)
def test_a_column_that_is_not_read_may_hold_anything(tmp_path: Path, column: pyarrow.Array) -> None:
    path = tmp_path / "completions_00001.parquet"
    pyarrow.parquet.write_table(trl_table(extra=column), path)
    _, steps, faults = read(path)
    assert (faults.count, sum(step.episodes for step in steps)) == (0, 6)


def test_a_damaged_row_group_costs_its_rows_and_not_those_of_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "completions_00001.parquet"
    table = pyarrow.Table.from_pylist(logs.trl_rows(1) * 20)
    pyarrow.parquet.write_table(table, path, row_group_size=60, compression="zstd", use_dictionary=False)
    chunk = pyarrow.parquet.read_metadata(path).row_group(0).column(2)
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(content)
    _, steps, faults = read(path)
    assert sum(step.episodes for step in steps) == 60
    assert "damage" in str(faults.kept[0])


# Any value anywhere ---------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([10**400, -(10**31), 2**63, -1, 0, 7, 1e308, -1e308, 5e-324, float("nan"), float("inf")])
    | st.sampled_from(["", "\0", "\ud800", "é" * 50, "9" * 5000, "=x", "3:99999", "assistant"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "x"]), inner),
    max_leaves=6,
)


def places(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*above, key)
        yield from places(value, (*above, key))


def changed(rows: list[logs.Row], row: int, place: tuple[Any, ...], value: Any) -> list[logs.Row]:
    rows = copy.deepcopy(rows)
    node: Any = rows[row]
    for key in place[:-1]:
        node = node[key]
    if value is ...:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    return rows


def assert_one_bad_row_costs_only_itself(folder: Path, rows: list[logs.Row], data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(rows) - 1))
    place = data.draw(st.sampled_from(list(places(rows[row]))))
    value = data.draw(st.just(...) | VALUES)
    path = logs.write_lines(folder / "1.jsonl", changed(rows, row, place, value))
    log, steps, faults = read(path)
    kept = sum(step.episodes for step in steps)
    if place == ("heedful_id",):
        # A batch counts from its first completion: without the number of that one the rest is incomplete.
        assert kept == 6 or faults.count or faults.aside
    else:
        assert kept >= 5
        # A row of traces may lose one without a fault: then it holds fewer episodes.
        assert kept >= 6 or faults.count or faults.aside or place[0] == "traces"
    measured(log, steps)


FORMATS = {**ROWS, "whole rows of heedful": whole_own_rows}
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_any_value_at_any_place_of_a_row_costs_only_this_row(
    tmp_path: Path, make: Callable[[], list[logs.Row]]
) -> None:
    @FEW
    @given(st.data())
    def check(data: st.DataObject) -> None:
        assert_one_bad_row_costs_only_itself(tmp_path, make(), data)

    check()


@pytest.mark.proof
@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_one_of_very_many_values_at_any_place_of_a_row_costs_only_this_row(
    tmp_path: Path, make: Callable[[], list[logs.Row]], record_property: Callable[[str, object], None]
) -> None:
    record_property("cases", 3000)

    @MANY
    @given(st.data())
    def check(data: st.DataObject) -> None:
        assert_one_bad_row_costs_only_itself(tmp_path, make(), data)

    check()


def test_the_names_of_many_columns_are_cut(tmp_path: Path) -> None:
    path = logs.write_lines(tmp_path / "a.jsonl", [{f"column_{place}": 1 for place in range(20_000)}])
    with pytest.raises(ValueError, match=r"column_19 and 19,980 more") as error:
        open_log(path, AuditSettings())
    assert len(str(error.value)) < 1000
