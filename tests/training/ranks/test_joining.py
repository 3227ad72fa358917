"""Ranks that cannot all meet: each ends within seconds and names the one that ended, long before --parallel.timeout."""

from __future__ import annotations

import itertools
import json
import socket
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.boundary import to_json  # noqa: E402
from heedful.run.config import TrainConfig  # noqa: E402
from heedful.training.ranks import joining  # noqa: E402
from heedful.training.ranks.joining import ProcessLost, meet  # noqa: E402
from heedful.training.ranks.parallel import ProcessRank  # noqa: E402
from patience import PATIENCE  # noqa: E402
from ports import lasting_port  # noqa: E402
from processes import ended, started  # noqa: E402

TRAIN = ["-m", "heedful", "train", "echo", "--config", "settings.json", "--out", "run"]

A_WHILE = timedelta(seconds=PATIENCE)

KILLED = """
import os, signal
from heedful.training.ranks.parallel import Presence, ProcessRank
with Presence(ProcessRank.of(os.environ), os.environ):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_rank_whose_peer_found_the_port_taken_ends_soon_and_names_it(echo_run: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(to_json(echo_run)))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        variables = {"MASTER_PORT": str(taken.getsockname()[1]), "TMPDIR": str(tmp_path)}
        with started(range(2), TRAIN, tmp_path, variables) as ranks:
            first, second = ended(ranks)
    assert [rank.returncode for rank in ranks] == [2, 2], first + second
    assert "address already in use" in first
    assert "Process 0 of 2 has ended before it joined: ProcessLost: Expected 2 processes to meet" in second
    assert "Process 1 does not wait for it." in second
    assert not (tmp_path / "run").exists()


def test_rank_0_does_not_wait_for_a_rank_that_was_killed_before_it_joined(
    echo_run: TrainConfig, tmp_path: Path
) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(to_json(echo_run)))
    variables = {"MASTER_PORT": str(lasting_port()), "TMPDIR": str(tmp_path)}
    with started([0], TRAIN, tmp_path, variables) as first, started([1], ["-c", KILLED], tmp_path, variables) as second:
        said, _ = ended([*first, *second])
    assert first[0].returncode == 2, said
    assert "Process 1 of 2 has ended before it joined, without a word" in said


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that reaches the time-out at its third reading. The store itself has all the time that it takes."""
    readings = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(readings) * A_WHILE.total_seconds(), sleep=lambda seconds: None)
    monkeypatch.setattr(joining, "time", clock)


def test_a_rank_that_never_comes_is_named_after_the_timeout(monkeypatch: pytest.MonkeyPatch, hurried: None) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(lasting_port()))
    with pytest.raises(
        ProcessLost, match=r"process 0 could not join: process 1, 2 did not come within --parallel.timeout"
    ):
        meet(ProcessRank(0, 3, 0), A_WHILE, lambda: "")
    with pytest.raises(ProcessLost, match=r"nothing answers there, where process 0 keeps the store, within"):
        meet(ProcessRank(1, 3, 1), A_WHILE, lambda: "")


@pytest.mark.parametrize("address", ["a" * 64, "a..b"])
def test_rank_0_does_not_wait_for_an_address_that_nobody_knows(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("MASTER_PORT", str(lasting_port()))
    with pytest.raises(ProcessLost, match="MASTER_ADDR is no address that this machine knows"):
        meet(ProcessRank(0, 2, 0), timedelta(seconds=1), lambda: "")


def test_a_rank_that_is_started_again_in_time_is_waited_for(monkeypatch: pytest.MonkeyPatch, hurried: None) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(lasting_port()))
    monkeypatch.setattr(joining, "SECONDS_TO_COME_BACK", 0.0)
    looks = iter(["Process 1 of 2 has ended before it joined.", ""])
    with pytest.raises(ProcessLost, match="process 1 did not come within"):
        meet(ProcessRank(0, 2, 0), A_WHILE, lambda: next(looks, ""))
