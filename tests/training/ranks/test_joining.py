"""Ranks that cannot all meet: each says who did not come."""

from __future__ import annotations

import itertools
from datetime import timedelta
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.training.ranks import joining  # noqa: E402
from heedful.training.ranks.joining import ProcessLost, meet  # noqa: E402
from heedful.training.ranks.parallel import ProcessRank  # noqa: E402
from patience import PATIENCE  # noqa: E402
from ports import lasting_port  # noqa: E402

A_WHILE = timedelta(seconds=PATIENCE)


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
        meet(ProcessRank(0, 3, 0), A_WHILE)
    with pytest.raises(
        ProcessLost, match=r"nothing answers there, where torchrun or process 0 keeps the store, within"
    ):
        meet(ProcessRank(1, 3, 1), A_WHILE)


@pytest.mark.parametrize("address", ["a" * 64, "a..b"])
def test_rank_0_does_not_wait_for_an_address_that_nobody_knows(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("MASTER_PORT", str(lasting_port()))
    with pytest.raises(ProcessLost, match="process 0 could not join: "):
        meet(ProcessRank(0, 2, 0), timedelta(seconds=1))
