"""A rank of this machine that has ended is seen by the others, whatever it ended of, and living ranks are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.training.ranks import parallel
from heedful.training.ranks.parallel import Presence, ProcessRank

ADDRESS = {"MASTER_ADDR": "somewhere", "MASTER_PORT": "1234"}

KILLED = f"""
import os, signal
from heedful.training.ranks.parallel import Presence, ProcessRank
with Presence(ProcessRank(1, 3, 1), {ADDRESS}):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    monkeypatch.setattr("tempfile.tempdir", None)


def of(rank: int, **changes: str) -> Presence:
    return Presence(ProcessRank(rank, 3, rank), ADDRESS | changes)


def test_ranks_that_live_or_have_not_begun_or_have_ended_well_are_not_named() -> None:
    with of(0) as first:
        assert first.ended() == ""  # 1 and 2 have not begun
        with of(1):
            assert first.ended() == ""
        assert first.ended() == ""


def test_a_rank_that_raised_is_named_with_its_words() -> None:
    with of(0) as first:
        with pytest.raises(ValueError, match="no ice"), of(1):
            raise ValueError("no ice\nand more")
        assert first.ended() == "Process 1 of 3 has ended before it joined: ValueError: no ice"


def test_a_rank_that_was_killed_is_named() -> None:
    with of(0) as first:
        killed = subprocess.run([sys.executable, "-c", KILLED], env=os.environ | {"PYTHONPATH": ":".join(sys.path)})
        assert killed.returncode == -signal.SIGKILL
        told = first.ended()
    assert told == "Process 1 of 3 has ended before it joined, without a word: look at what it printed last."


def test_what_an_earlier_run_or_another_one_left_behind_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for other in (of(1, MASTER_PORT="1235"), of(1, TORCHELASTIC_RESTART_COUNT="1")):
        with pytest.raises(ValueError, match="no ice"), other:
            raise ValueError("no ice")
    with pytest.raises(ValueError, match="no ice"), of(2):
        raise ValueError("no ice")
    clock = parallel.time.time
    monkeypatch.setattr(parallel.time, "time", lambda: clock() + 2 * parallel.SAME_START_S)
    with of(0) as later:
        assert later.ended() == ""


def test_a_second_process_of_the_same_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LOCK_ATTEMPTS", 2)
    with (
        of(0),
        pytest.raises(ValueError, match="one process with rank 0 at somewhere:1234, but another one runs"),
        of(0),
    ):
        pass


def test_a_folder_that_others_can_write_into_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / f"heedful-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ValueError, match=r"to be a folder that only you can use; remove it, or set TMPDIR"), of(0):
        pass


def test_a_single_process_leaves_nothing(tmp_path: Path) -> None:
    with Presence(ProcessRank(), {}) as alone:
        assert alone.ended() == ""
        assert list(tmp_path.iterdir()) == []
