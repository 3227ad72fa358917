"""Watching and reading audits in tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heedful.auditing import AuditSettings, open_log
from heedful.auditing.logs.files import rows_of
from heedful.auditing.logs.records import Faults
from heedful.auditing.recognised import RecognisedLog
from heedful.auditing.steps import LoggedStep, StepStream
from heedful.storage import RunFolder, read_metrics
from heedful.types import Metric


@dataclass
class Witness:
    """Remembers what an audit says while it goes on."""

    steps: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    size: int = 0
    read: int = 0

    def begin(self, size: int) -> None:
        self.size = size

    def step(self, step: LoggedStep, metrics: Sequence[Metric]) -> None:
        self.steps.append(step.number)
        self.read = step.read

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def read(source: Path, settings: AuditSettings | None = None) -> tuple[RecognisedLog, list[LoggedStep], Faults]:
    """A log as steps, without measuring it."""
    log, faults = open_log(source, settings or AuditSettings()), Faults()
    episodes = (
        episode
        for file in log.files.files
        for episode in log.reader.episodes(rows_of(file, faults, lambda more: None, log.reader.columns), faults)
    )
    return log, list(StepStream(episodes, faults)), faults


def by_step(folder: Path) -> dict[int, dict[str, Metric]]:
    """The readings in a folder of a run or an audit."""
    found: dict[int, dict[str, Metric]] = {}
    for line in read_metrics(RunFolder(folder).metrics):
        found.setdefault(line.step, {}).update(line.metrics)
    return found
