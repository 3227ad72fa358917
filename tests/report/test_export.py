"""The tables behind a page: what the files of the run hold, as parquet and as JSON lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from synthetic_run import HOSTILE, make_run

from heedful import cli
from heedful.report.export import TABLES, export
from heedful.storage import RunFolder, read_rollouts

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return make_run(tmp_path_factory.mktemp("run") / "lake")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_tables_hold_what_the_files_of_the_run_hold(run: RunFolder, tmp_path: Path) -> None:
    written = export(run.path, tmp_path / "tables", "json")
    assert [path.name for path in written] == [f"{table}.jsonl" for table in TABLES]
    tables = {path.stem: lines(path) for path in written}
    for table, rows in tables.items():
        assert all(list(row) == list(TABLES[table]) for row in rows)
    stored = read_rollouts(run.rollouts(20))
    first = stored.groups[1]
    (group,) = [row for row in tables["groups"] if (row["step"], row["group"]) == (20, 1)]
    rewards = [one.reward for one in first.trajectories]
    assert group["task"] == first.task.id
    assert group["reward"] == pytest.approx(sum(rewards) / 8)
    members = [row for row in tables["episodes"] if (row["step"], row["group"]) == (20, 1)]
    assert [row["reward"] for row in members] == rewards
    assert sum(row["advantage"] for row in members) == pytest.approx(0.0)
    turns = [row for row in tables["turns"] if row["step"] == 20]
    assert len(turns) == sum(len(one.turns) for each in stored.groups for one in each.trajectories)
    assert any(HOSTILE in row["reply"] for row in turns)
    missing = [row for row in tables["metrics"] if row["name"] == "signal/unpaid"]
    assert {(row["value"], row["why"]) for row in missing} == {(None, "the environment reports no progress")}
    # 32 thoughts, each read under the 4 prompts of its block, with 2 actions, at 4 steps.
    assert len(tables["swaps"]) == 32 * 4 * 2 * 4


def test_parquet_and_json_hold_the_same(run: RunFolder, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(run.path, tmp_path, "parquet")
    export(run.path, tmp_path, "json")
    for table in TABLES:
        assert parquet.read_table(tmp_path / f"{table}.parquet").to_pylist() == lines(tmp_path / f"{table}.jsonl")


def test_a_run_without_rollouts_has_no_table_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "metrics": {"reward/mean": 0.5}}\n')
    assert cli.run(["report", str(tmp_path), "--export", str(tmp_path / "out"), "--export-as", "json"]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["metrics.jsonl"]
    assert str(tmp_path / "out" / "metrics.jsonl") in capsys.readouterr().out
    assert cli.run(["report", str(tmp_path), "--export", str(tmp_path / "metrics.jsonl")]) == 2


def test_the_page_of_the_docs_names_every_column() -> None:
    for table, columns in TABLES.items():
        (row,) = re.findall(rf"^\| `{table}` \|.*$", PAGE, re.MULTILINE)
        assert re.findall(r"`(\w+)`", row)[1:] == list(columns), table
