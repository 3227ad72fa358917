"""What a watch does elsewhere: readings and alerts for dashboards, and a stop of a trainer whose run collapses."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.diagnostics.alarms.watch import Alarm
from heedful.storage import write_whole
from heedful.storage.trackers import Guarded, open_trackers
from heedful.watching.sinks import AlarmHistory, Measured, Pending, Sink


class Dashboards(Sink):
    """Writes what is new to trackers, and tells those of alarms that take alerts."""

    def __init__(self, names: Sequence[str], configuration: Mapping[str, Any], wandb_run: str = "") -> None:
        self._open = lambda folder: open_trackers(names, folder, configuration, wandb_run)
        self._trackers: list[Guarded] = []
        self._alarms = AlarmHistory()

    def begin(self, folder: Path) -> None:
        """Raises ValueError where a tracker cannot start."""
        self._trackers = self._open(folder)

    def step(self, measured: Measured) -> None:
        for tracker in () if measured.replayed else self._trackers:
            tracker.write(measured.number, measured.metrics)
        self._alert(self._alarms.add(measured))

    def pending(self, pending: Pending) -> None:
        self._alert(self._alarms.wait(pending))

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()
        self._trackers = []

    def _alert(self, raised: Sequence[Alarm]) -> None:
        for alarm in raised:
            for tracker in self._trackers:
                tracker.alert(alarm)


class StopOnCollapse(Sink):
    """Asks the trainer to stop at the first new alarm that names a collapse."""

    def __init__(self, stop: Callable[[str], str], tell: Callable[[str], None]) -> None:
        """`stop` gets the sentence of the alarm, and returns one that says what was done, for `tell`."""
        self._stop = stop
        self._tell = tell
        self._done = False

    def step(self, measured: Measured) -> None:
        named = [alarm for alarm in measured.raised if alarm.collapse]
        if named and not (measured.replayed or self._done):
            self._done = True
            self._tell(self._stop(named[0].sentence()))


def stop_by_file(path: Path) -> Callable[[str], str]:
    """Stop by a file for which the trainer looks. Raises ValueError where it cannot be written."""
    if not path.parent.is_dir():
        raise ValueError(f"Expected --on-collapse stop-file:PATH in a folder that exists, found no {path.parent}.")

    def stop(alarm: str) -> str:
        write_whole(path, f"{alarm}\n")
        return f"Wrote {path}, for which the trainer has to look."

    return stop


def stop_by_signal(process: int) -> Callable[[str], str]:
    """Stop by SIGTERM to a process of this machine and this user. Raises ValueError where there is no such process."""
    started = _own_process(process)

    def stop(alarm: str) -> str:
        try:
            same = _own_process(process) == started
        except ValueError:
            same = False
        if not same:
            return f"Process {process} has ended already, so no signal was sent."
        os.kill(process, signal.SIGTERM)
        return f"Sent SIGTERM to process {process}."

    return stop


def _own_process(process: int) -> str:
    """What tells a process from a later one with its number, where the system says it (Linux)."""
    place = Path(f"/proc/{process}")
    try:
        os.kill(process, 0)
        own = not place.exists() or place.stat().st_uid == os.getuid()
        started = (place / "stat").read_text().rpartition(")")[2].split()[19] if place.exists() else ""
    except (ProcessLookupError, FileNotFoundError):
        wanted = "Expected --on-collapse signal:N with a process of this machine"
        raise ValueError(f"{wanted}, found no process {process}.") from None
    except PermissionError:
        own = False
    if not own:
        raise ValueError(f"Expected --on-collapse signal:N with a process of yours, found another user's: {process}.")
    return started
