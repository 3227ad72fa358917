"""Hand-made steps of a watched run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heedful.diagnostics.alarms.watch import Alarm
from heedful.storage.trackers import JsonlTracker
from heedful.types import Metric
from heedful.watching.sinks import Measured, Sink

RUNAWAY = Alarm("kl_runaway", 6, "trainer/kl is 4 times as large", "Lower the learning rate.", "warning")
BROKEN = Alarm("not_finite", 7, "trainer/loss is not finite", "Go back.", "collapse")


@dataclass
class Clock:
    """Stands still until it is told to go on."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Run:
    """A folder whose lines are written as a pipeline does: on disk first, then to the sinks."""

    folder: Path
    sinks: Sequence[Sink]
    standing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for sink in self.sinks:
            sink.begin(self.folder)

    def step(self, number: int, *raised: Alarm, replayed: bool = False, **values: float) -> None:
        self.standing |= {alarm.name: alarm.evidence for alarm in raised}
        metrics = [Metric(name.replace("_", "/", 1), value) for name, value in values.items()]
        metrics += [Metric(f"alarm/{name}", 1.0, why=why) for name, why in self.standing.items()]
        tracker = JsonlTracker(self.folder / "metrics.jsonl")
        tracker.write(number, metrics)
        tracker.close()
        for sink in self.sinks:
            sink.step(Measured(number, metrics, raised, replayed=replayed))
