"""The seam between the measuring of a run and everything that is told of it: steps and alarms go to sinks.

An audit, a watch and the plug-ins for other trainers hand the same two types to the same sinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from heedful.diagnostics.alarms.watch import Alarm
from heedful.types import Group, Metric


class Rollouts(Protocol):
    """The rollouts of one step, as a reader of logs or a trainer has them."""

    @property
    def groups(self) -> tuple[Group, ...]: ...


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
    read: float = 0.0
    """The share of the log's bytes that is read."""


class Sink(Protocol):
    """Receives what the pipeline finds. Calls come from one thread and in order: `begin`, any others, `end`."""

    def begin(self, folder: Path) -> None:
        """`folder` is the one with `metrics.jsonl`."""

    def note(self, sentence: str) -> None:
        """What a person should be told."""

    def step(self, measured: Measured) -> None:
        """A step was closed."""

    def pending(self, pending: Pending) -> None:
        """A poll of a watch has ended."""

    def end(self, why: str) -> None:
        """Nothing follows. `why`: the sentence that says what ended it."""
