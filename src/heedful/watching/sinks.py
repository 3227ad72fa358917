"""The seam between the measuring of a run and everything that is told of it: steps and alarms go to sinks.

An audit, a watch and the plug-ins for other trainers hand the same two types to the same sinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from heedful.diagnostics.alarms.causes import Cause, likely
from heedful.diagnostics.alarms.watch import Alarm
from heedful.types import Group, Metric

STALLED = "stalled"
"""The alarm of a run that stands still. No metric holds it, since only a watch has a clock."""


class Rollouts(Protocol):
    """The rollouts of one step, as a reader of logs or a trainer has them."""

    @property
    def groups(self) -> tuple[Group, ...]: ...

    @property
    def read(self) -> int:
        """Bytes of the log up to its last row."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A step that is closed: its line is in `metrics.jsonl`, and stays."""

    number: int
    metrics: Sequence[Metric]
    raised: tuple[Alarm, ...] = ()
    """Alarms that were not raised at the step before."""
    step: Rollouts | None = None
    """Its rollouts, without those of a step that has scalars alone."""
    replayed: bool = False
    """The line was there before this process began: its alarms were told then."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What a watch knows between two steps, at each poll."""

    age: float
    """Seconds since the log grew."""
    interval: float | None = None
    """Median seconds between steps. `None` before the third one."""
    stalled: str = ""
    """Why the run counts as stalled, with numbers. Empty: it does not."""
    open_step: int | None = None
    """The step whose rollouts are being written."""
    provisional: Mapping[str, Metric] = field(default_factory=dict)
    """Readings of that step so far. They are in no file and in no alarm."""


class Sink:
    """Receives what the pipeline finds, and ignores the calls that a derived class does not define. The end closes it.

    Calls come from one thread and in order: `begin`, any others, `end`.
    """

    def begin(self, folder: Path) -> None:
        """`folder` is the one with `metrics.jsonl`."""

    def note(self, sentence: str) -> None:
        """What a person should be told."""

    def step(self, measured: Measured) -> None:
        """A step was closed."""

    def pending(self, pending: Pending) -> None:
        """A poll of a watch has ended."""

    def end(self, why: str) -> None:
        """All was measured, and the page is written. `why`: the sentence that says what ended a watch."""
        self.close()

    def close(self) -> None:
        """Give back what is held: at the end, and where an error came in its place. A second call does nothing."""


@dataclass(slots=True)
class AlarmHistory:
    """The alarms of a run so far."""

    first: dict[str, Alarm] = field(default_factory=dict)
    """By name, as each was raised first."""
    standing: set[str] = field(default_factory=set)
    """Those that hold at the last step."""
    readings: dict[str, float] = field(default_factory=dict)
    """Of the step of the first one."""
    step: int = -1
    """The last step."""

    def add(self, measured: Measured) -> tuple[Alarm, ...]:
        """Take a step. Returns its alarms that nobody was told of yet.

        A step that is not above the last one is measured again, after its log has changed.
        """
        if measured.number <= self.step:
            self.first = {name: alarm for name, alarm in self.first.items() if alarm.step < measured.number}
            self.standing &= {*self.first, STALLED}
        self.step = measured.number
        numbers = {each.name: each.number for each in measured.metrics if each.number is not None}
        self.readings = self.readings or (numbers if measured.raised else {})
        for alarm in measured.raised:
            self.first.setdefault(alarm.name, alarm)
            self.standing.add(alarm.name)
        self.standing -= {name for name in self.first if numbers.get(f"alarm/{name}") == 0}
        return () if measured.replayed else measured.raised

    def wait(self, pending: Pending) -> tuple[Alarm, ...]:
        """Take the state between two steps. Returns the alarm of a run that has begun to stand still."""
        if not pending.stalled:
            self.standing.discard(STALLED)
            return ()
        known = STALLED in self.standing
        self.standing.add(STALLED)
        step, evidence = max(0, self.step), pending.stalled.removesuffix(".")
        alarm = Alarm(STALLED, step, evidence, f"Likely cause: {likely({STALLED: step})[0].sentence()}", "warning")
        self.first.setdefault(STALLED, alarm)
        return () if known else (alarm,)

    def causes(self) -> tuple[Cause, ...]:
        """The likely causes of all of them, the likeliest first."""
        return likely({name: alarm.step for name, alarm in self.first.items()}, self.readings)
