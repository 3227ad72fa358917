"""Watching and reading audits in tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from heedful.auditing import AuditSettings, open_log
from heedful.auditing.logs.files import rows_of
from heedful.auditing.logs.records import Faults
from heedful.auditing.recognised import RecognisedLog
from heedful.auditing.steps import LoggedStep, steps_of
from heedful.storage import RunFolder, read_metrics
from heedful.types import Metric
from heedful.watching.sinks import Measured, Pending, Sink


@dataclass
class Witness(Sink):
    """Remembers what an audit says while it goes on."""

    steps: list[int] = field(default_factory=list)
    """Those that were measured by this process."""
    notes: list[str] = field(default_factory=list)
    alarms: list[tuple[str, int]] = field(default_factory=list)
    pendings: list[Pending] = field(default_factory=list)
    read: int = 0
    ended: str | None = None

    def step(self, measured: Measured) -> None:
        self.steps += [] if measured.replayed else [measured.number]
        self.alarms += [] if measured.replayed else [(alarm.name, alarm.step) for alarm in measured.raised]
        if isinstance(measured.step, LoggedStep):
            self.read = measured.step.read

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def pending(self, pending: Pending) -> None:
        self.pendings.append(pending)

    def end(self, why: str) -> None:
        self.ended = why


def read(source: Path, settings: AuditSettings | None = None) -> tuple[RecognisedLog, list[LoggedStep], Faults]:
    """A log as steps, without measuring it."""
    log, faults = open_log(source, settings or AuditSettings()), Faults()
    episodes = (
        episode
        for file in log.files.files
        for episode in log.reader.episodes(rows_of(file, faults, lambda more: None, log.reader.columns), faults)
    )
    return log, list(steps_of(episodes, faults)), faults


def by_step(folder: Path) -> dict[int, dict[str, Metric]]:
    """The readings in a folder of a run or an audit."""
    found: dict[int, dict[str, Metric]] = {}
    for line in read_metrics(RunFolder(folder).metrics):
        found.setdefault(line.step, {}).update(line.metrics)
    return found
