"""Task files of verl: what is in them, and that the loop draws the same tasks from them. Without verl."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from heedful.command_process import run_command
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.toys.echo import Echo
from heedful_verl.play.playing import environment_of
from heedful_verl.tasks import VerlTask, main, read_task_row

GAME = """
from dataclasses import dataclass
from heedful.envs.toys.echo import Echo


@dataclass(frozen=True, kw_only=True)
class Louder(Echo):
    name = "louder"
    volume: int = 3


class Nothing:
    pass
"""


def _run(words: list[str]) -> int:
    return run_command(lambda: main(words))


def rows_in(path: Path) -> list[dict[str, Any]]:
    return pyarrow.parquet.read_table(path).to_pylist()  # type: ignore[no-any-return]


def test_a_file_holds_distinct_tasks_that_the_loop_draws_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "train.parquet"
    assert _run(["frozen_lake", "--tasks", "20", "--out", str(out), "--env.slip", "0.25"]) == 0
    assert "20 tasks of frozen_lake (train)" in capsys.readouterr().out
    rows = rows_in(out)
    assert len({row["extra_info"]["heedful"]["task"] for row in rows}) == 20
    for place, row in enumerate(rows):
        given = read_task_row(row)
        env = environment_of(given.environment)
        assert env == FrozenLake(slip=0.25)
        task = given.draw(env)
        assert (task.id, task.split, row["extra_info"]["index"]) == (given.task, "train", place)
        assert row["prompt"] == [{"role": "user", "content": env.episode().start(task, 0).text}]
        assert (row["data_source"], row["agent_name"]) == ("frozen_lake", "heedful")


def test_the_files_of_two_splits_share_no_task_and_can_be_read_together(tmp_path: Path) -> None:
    found = {}
    for split in ("train", "val"):
        out = tmp_path / f"{split}.parquet"
        assert _run(["echo", "--tasks", "30", "--split", split, "--out", str(out), "--source", "mine"]) == 0
        found[split] = {row["extra_info"]["heedful"]["task"] for row in rows_in(out)}
        assert {row["data_source"] for row in rows_in(out)} == {"mine"}
    assert not found["train"] & found["val"]
    _run(["frozen_lake", "--tasks", "3", "--out", str(tmp_path / "other.parquet")])
    schemas = [pyarrow.parquet.read_schema(tmp_path / f"{name}.parquet") for name in ("train", "other")]
    assert schemas[0] == schemas[1]


def test_the_same_line_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        assert _run(["echo", "--tasks", "5", "--seed", "3", "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


@pytest.mark.parametrize("name", ["tasks.json", "tasks", "tasks.PARQUET"])
def test_a_name_that_verl_reads_with_another_reader_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["echo", "--tasks", "2", "--out", str(tmp_path / name)]) == 2
    assert f"Expected a name that ends in .parquet, by which verl chooses its reader, found '{name}'" in (
        capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


def test_other_knobs_than_the_file_has_are_noticed() -> None:
    task = Echo().task(5)
    with pytest.raises(ValueError, match="was drawn by another environment or with other knobs"):
        VerlTask("{}", task.id, 5).draw(Echo(symbols=9))


def test_a_row_of_another_dataset_is_refused_with_the_command_that_writes_one() -> None:
    for row in ({}, {"extra_info": None}, {"extra_info": {"index": 3}}):
        with pytest.raises(ValueError, match=r"Expected a row of a task file .*heedful_verl\.tasks"):
            read_task_row(row)


def test_ones_own_environment_is_named_as_module_and_class_and_trusted_again_in_verl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "verl_louder.py").write_text(GAME)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "train.parquet"
    assert _run(["verl_louder:Louder", "--tasks", "2", "--out", str(out), "--env.volume", "11"]) == 0
    given = read_task_row(rows_in(out)[0])
    louder = sys.modules["verl_louder"].Louder
    assert environment_of(given.environment, ("verl_louder",)) == louder(volume=11)
    assert _run(["verl_louder:Nothing", "--out", str(out)]) == 2
    assert _run(["verl_louder:Missing", "--out", str(out)]) == 2
    assert "verl_louder" in capsys.readouterr().err


SLIPS = """
from dataclasses import dataclass, replace
from heedful.envs.toys.echo import Echo
from heedful.types import Observation


class Odd(Echo):
    def task(self, seed):
        return replace(super().task(seed), **self.other)

class NumberAsId(Odd):
    other = {"id": 5}

class TextAsSeed(Odd):
    other = {"seed": "x"}

class SeedTooLarge(Odd):
    other = {"seed": 10**30}

@dataclass(frozen=True, kw_only=True)
class NoTurns(Echo):
    turns: int | None = None

    def __post_init__(self):
        pass

class HalfALetter(Echo):
    def episode(self):
        return Started(super().episode())

@dataclass
class Started:
    played: object

    def start(self, task, member):
        return replace(self.played.start(task, member), text="a\\udc80b")

    def step(self, reply):
        return self.played.step(reply)
"""


def test_slips_of_ones_own_environment_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "verl_slips.py").write_text(SLIPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "train.parquet"
    for name, sentence in (
        ("NumberAsId", "a Task with the id 5; a text that names the start state was expected"),
        ("TextAsSeed", "a Task with the seed 'x'; a whole number of 64 bits was expected"),
        ("SeedTooLarge", "a whole number of 64 bits was expected"),
        ("NoTurns", "a whole number of at least 1 as `turns` of the environment echo, found None"),
    ):
        assert _run([f"verl_slips:{name}", "--tasks", "1", "--out", str(out)]) == 2
        assert sentence in capsys.readouterr().err
        assert not out.exists()
    assert _run(["verl_slips:HalfALetter", "--tasks", "1", "--out", str(out)]) == 0
    assert rows_in(out)[0]["prompt"][0]["content"] == r"a\udc80b"
    assert _run(["frozen_lake", "--env.observation", "image", "--tasks", "1", "--out", str(out)]) == 2
    assert "text alone for verl, found pictures in task frozen_lake-" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["nowhere"], "There is no environment named 'nowhere'"),
        (["echo", "--tasks", "0"], "tasks"),
        (["echo", "--tasks", "100000", "--env.symbols", "2", "--env.decoys", "0"], "distinct tasks of split 'train'"),
        (["echo", "--env.symbol", "2"], "symbol"),
    ],
)
def test_a_mistake_ends_in_a_sentence(
    line: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "never.parquet"
    try:
        code: Any = _run([*line, "--out", str(out)])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert sentence in capsys.readouterr().err
    assert not out.exists()


def test_an_environment_server_is_asked_at_the_address_that_the_line_names(tmp_path: Path) -> None:
    from served import serving

    with serving(Echo()) as server:
        assert _run(["remote", "--tasks", "2", "--env.url", server.url, "--out", str(tmp_path / "served.parquet")]) == 0
    assert [row["data_source"] for row in rows_in(tmp_path / "served.parquet")] == ["remote"] * 2


def test_a_file_of_something_else_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.parquet").write_text("{}")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "config.parquet")
    (tmp_path / "folder.parquet").mkdir()
    for name in ("config.parquet", "link.parquet", "folder.parquet"):
        assert _run(["echo", "--tasks", "2", "--out", str(tmp_path / name)]) == 2
        assert "ive another name" in capsys.readouterr().err
    assert (tmp_path / "config.parquet").read_text() == "{}"
    assert (tmp_path / "link.parquet").is_symlink()
