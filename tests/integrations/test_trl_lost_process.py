"""A process that fails in a measurement: the other one ends, with a sentence that says so."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed (pip install 'heedful[trl]')")

import trl_lost_worker

from processes import ALONE_S, ended, meeting_at, started, store_of


def test_no_process_waits_for_one_that_failed(tiny_model: Path, tmp_path: Path) -> None:
    store, begin = store_of(2), time.monotonic()
    with started(
        range(2), [trl_lost_worker.__file__, str(tmp_path), str(tiny_model)], tmp_path, meeting_at(store)
    ) as two:
        first, second = ended(two)
    assert [process.returncode for process in two] == [1, -9], second[-2000:]
    assert first.count("ValueError: a fault of rank 0 alone") == 2
    assert "RuntimeError: heedful expected prompts of process 0, found that it has failed" in second
    assert "RuntimeError: heedful expected numbers of process 0, found that it has failed" in second
    assert "RuntimeError: heedful expected an answer of every process while it measured, found that one has" in first
    assert time.monotonic() - begin < ALONE_S
