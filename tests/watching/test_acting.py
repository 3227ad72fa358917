"""What a watch does elsewhere: dashboards, a stop file, a signal to the trainer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from watched import BROKEN, RUNAWAY

from heedful.storage import trackers
from heedful.types import Metric
from heedful.watching.acting import Dashboards, StopOnCollapse, stop_by_file, stop_by_signal
from heedful.watching.sinks import Measured, Pending


class Board:
    """A dashboard that takes alerts."""

    calls: list[tuple[object, ...]]

    def __init__(self, folder: Path, configuration: object) -> None:
        self.calls = Board.calls = [(folder.name, configuration)]

    def write(self, step: int, metrics: object) -> None:
        self.calls.append(("write", step))

    def alert(self, alarm: object) -> None:
        self.calls.append(("alert", getattr(alarm, "name", "")))

    def close(self) -> None:
        self.calls.append(("close",))


def test_dashboards_get_new_steps_alone_and_are_told_of_new_alarms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(trackers.TRACKERS, "trackio", Board)
    sink = Dashboards(["trackio"], {"log": "completions"})
    sink.begin(tmp_path / "watch")
    sink.step(Measured(6, [Metric("reward/mean", 1.0)], (RUNAWAY,), replayed=True))
    sink.step(Measured(7, [], (BROKEN,)))
    sink.pending(Pending(700.0, stalled="No line."))
    sink.end("")
    said = [("watch", {"log": "completions"}), ("write", 7), ("alert", "not_finite"), ("alert", "stalled"), ("close",)]
    assert Board.calls == said


def test_a_collapse_writes_the_stop_file_once_and_a_warning_does_not(tmp_path: Path) -> None:
    told: list[str] = []
    file = tmp_path / "STOP"
    sink = StopOnCollapse(stop_by_file(file), told.append)
    sink.step(Measured(6, [], (RUNAWAY,)))
    assert not file.exists()
    sink.step(Measured(7, [], (BROKEN,)))
    assert file.read_text() == f"{BROKEN.sentence()}\n"
    file.unlink()
    sink.step(Measured(8, [], (BROKEN,)))
    assert not file.exists()
    assert told == [f"Wrote {file}, for which the trainer has to look."]


def test_a_collapse_that_was_told_before_stops_nothing(tmp_path: Path) -> None:
    StopOnCollapse(stop_by_file(tmp_path / "STOP"), pytest.fail).step(Measured(7, [], (BROKEN,), replayed=True))
    assert not (tmp_path / "STOP").exists()


def test_a_stop_file_without_a_folder_is_refused_before_the_watch(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--on-collapse stop-file:PATH in a folder that exists, found no"):
        stop_by_file(tmp_path / "none" / "STOP")


def test_the_named_process_gets_sigterm_and_one_that_has_ended_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        stop = stop_by_signal(process.pid)
        assert stop("Alarm.") == f"Sent SIGTERM to process {process.pid}."
        assert process.wait() == -signal.SIGTERM
        assert stop("Alarm.") == f"Process {process.pid} has ended already, so no signal was sent."
    with pytest.raises(ValueError, match=f"--on-collapse signal:N .*, found no process {process.pid}"):
        stop_by_signal(process.pid)


def test_a_process_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(ValueError, match=f"--on-collapse signal:N .*, found another user's: {os.getpid()}"):
        stop_by_signal(os.getpid())
