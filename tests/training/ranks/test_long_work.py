"""Ranks that wait for the work of another: as long as it lives, and no longer."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

torch = pytest.importorskip("torch")

from torch.distributed import HashStore  # noqa: E402

from heedful.stopping import StoppedBySignal, end_at_once  # noqa: E402
from heedful.training.ranks import joining  # noqa: E402
from heedful.training.ranks.joining import LongWork, ProcessLost  # noqa: E402


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> LongWork:
    monkeypatch.setattr(joining, "SIGN_SECONDS", 0.02)
    return LongWork(HashStore(), "growth")


def test_others_wait_longer_than_the_timeout_while_the_rank_gives_signs(work: LongWork) -> None:
    order: list[str] = []

    def grow() -> None:
        with work.done_by(0):
            time.sleep(1.5)
            order.append("grown")

    thread = threading.Thread(target=grow)
    thread.start()
    work.wait_for([0], timeout=1.0)
    order.append("read")
    thread.join()
    assert order == ["grown", "read"]


def test_a_rank_without_a_sign_is_lost_after_the_timeout(work: LongWork) -> None:
    began = time.monotonic()
    with pytest.raises(ProcessLost, match=r"^Process 3 has given no sign of life for 0 seconds \(--parallel.timeout\)"):
        work.wait_for([3], timeout=0.2)
    assert time.monotonic() - began >= 0.2


def test_work_that_fails_is_not_done_and_its_error_is_told(work: LongWork) -> None:
    with pytest.raises(ValueError, match="no ice"), work.done_by(0):
        raise ValueError("no ice")
    assert not work._store.check([work._key("done", 0)])
    work._store.set("left/0", "ValueError: no ice")
    with pytest.raises(ProcessLost, match=r"^Process 0 has failed: ValueError: no ice$"):
        work.wait_for([0], timeout=60)


def test_a_rank_that_waits_handles_signals(work: LongWork) -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(StoppedBySignal), end_at_once(), work.done_by(0):
        work.wait_for([0], timeout=60)
