"""Observer of another trainer's sampled batches: groups, verdicts, measurements, record.

It only reads. It is called after a batch was rewarded and before it is trained on. So the weights are those that
sampled the batch, unless the trainer samples ahead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from heedful.diagnostics.alarms.watch import Alarm
from heedful.integrations.watching.completions import BatchReader, Completion, values_of
from heedful.integrations.watching.pictures import Unplaced
from heedful.integrations.watching.record import Record
from heedful.measuring.diagnostician import Diagnostician
from heedful.protocols import Filter
from heedful.seeds import stream
from heedful.storage.trackers import JsonlTracker
from heedful.types import Group, Metric, Verdict

_LOG = logging.getLogger("heedful")


@dataclass(frozen=True, slots=True)
class Seen:
    """Result of observing one batch."""

    step: int
    """Number of the batch, from 0."""
    groups: list[Group]
    verdicts: list[Verdict]
    metrics: list[Metric]
    raised: tuple[Alarm, ...] = ()
    """Alarms that were not yet raised in the previous batch."""


@dataclass(slots=True)
class Observer:
    """One process's view of a run. `generation` counts the batches seen."""

    chooses: Filter
    reader: BatchReader
    diagnostician: Diagnostician
    temperature: float
    seed: int
    record: Record | None = None
    tracker: JsonlTracker | None = None
    generation: int = 0
    read: int | None = None
    """Most groups whose thoughts are read. `None` = all."""
    measuring: Callable[[], AbstractContextManager[None]] = nullcontext
    """Makes a context in which the trainer's model reads what the scorer asks. Outside of it the model is as it was."""

    def observe(self, members_PG: Sequence[Sequence[Completion]], version: int, also: Sequence[Metric] = ()) -> Seen:
        """Measure one batch.

        `version`: the number of updates before the weights. `also`: metrics that are recorded with those of the batch.
        """
        step = self.generation
        groups, unreadable = self._groups(members_PG, version)
        values_PG = values_of(members_PG, groups, self.chooses.on)
        verdicts = list(self.chooses(values_PG, stream(self.seed, "filter", step)))
        start = time.perf_counter()
        with self.measuring():
            diagnosis = self.diagnostician.measure(step, groups, verdicts, self.chooses.on, self.read, unreadable)
        sampled = sum(len(turn.reply.ids) for group in groups for member in group.trajectories for turn in member.turns)
        metrics = [
            *diagnosis.metrics,
            *also,
            Metric("filter/empty", float(not any(verdict.kept for verdict in verdicts))),
            Metric("tokens/collect", float(sampled)),
            Metric("time/diagnose", time.perf_counter() - start),
        ]
        if self.record is not None and self.tracker is not None:
            self.record.write(step, groups, verdicts, diagnosis)
            self.tracker.write(step, metrics)
        self.generation += 1
        for alarm in diagnosis.raised:
            _LOG.warning(alarm.sentence())
        return Seen(step, groups, verdicts, metrics, diagnosis.raised)

    def _groups(self, members_PG: Sequence[Sequence[Completion]], version: int) -> tuple[list[Group], str]:
        """The completions as groups, and why their pictures cannot be read, if they cannot."""
        why = next((member.unreadable for members in members_PG for member in members if member.unreadable), "")
        if not why:
            try:
                return self.reader.groups(members_PG, version, self.temperature), ""
            except Unplaced as error:
                why = str(error)
        return replace(self.reader, sight=None).groups(members_PG, version, self.temperature), why

    def begin(self, record: Record) -> None:
        """Keep a record from now on."""
        self.close()
        self.record, self.tracker = record, JsonlTracker(record.folder.metrics)

    def close(self) -> None:
        if self.tracker is not None:
            self.tracker.close()
        if self.record is not None:
            self.record.close()
        self.record, self.tracker = None, None

    def state(self) -> dict[str, Any]:
        """The state that a resumed run needs, as a JSON tree."""
        folder = str(self.record.folder.path.name) if self.record is not None else None
        return {"generation": self.generation, "folder": folder, "diagnostics": self.diagnostician.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.generation = state["generation"]
        self.diagnostician.load_state(state["diagnostics"])
