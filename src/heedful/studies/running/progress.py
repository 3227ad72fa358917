"""The view of several runs that go on: one row per run, read from its measurements, and the time left.

Promise: only the ends of the runs' files are read, so watching costs next to nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from heedful.boundary.open_files import open_file
from heedful.console import SafeConsole, duration
from heedful.diagnostics.catalogue import LIVE_COLUMNS

TAIL_BYTES = 1 << 17
"""Bytes read from the end of a metrics.jsonl: at least a dozen steps."""

PLAIN_SECONDS = 30.0
"""Seconds between the lines that replace the live table where there is no terminal."""

MOST_ROWS = 16
"""Runs shown in the live table: those that run, then those that failed, then the latest others."""

COLUMNS = {column.heading: column.metric for column in LIVE_COLUMNS if column.of_many}
"""Column -> metric, besides step and evaluated success."""

HELD_OUT = "held out"
"""The column of evaluated success."""

TRAINED = "success/rate"
"""Every training step writes it; an evaluation alone does not."""

_URGENCY = ("running", "failed", "interrupted", "stopped", "done", "waiting")


@dataclass(slots=True)
class RunRow:
    """The last readings of one run."""

    label: str
    metrics: Path
    steps: int
    evaluated: str
    """Name of the metric of evaluated success."""
    step: int = 0
    """Steps done."""
    values: dict[str, float] = field(default_factory=dict)
    """Column -> the last number read, which may be some steps old."""

    def refresh(self) -> None:
        """Read the end of the measurements. Without any the row stays as it is."""
        for step, metrics in tail(self.metrics):
            trained = TRAINED in metrics
            self.step = max(self.step, min(step + 1 if trained else step, self.steps))
            for column, name in (*COLUMNS.items(), (HELD_OUT, self.evaluated)):
                stored = metrics.get(name)
                value = stored.get("value") if isinstance(stored, dict) else stored  # with an interval, or without
                if isinstance(value, int | float):
                    self.values[column] = float(value)

    def cells(self) -> tuple[str, ...]:
        found = [self.values.get(column) for column in (*COLUMNS, HELD_OUT)]
        return (f"{self.step}/{self.steps}", *("-" if value is None else f"{value:.3f}" for value in found))


def tail(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """The last whole lines of a metrics.jsonl as (step, metrics), oldest first; empty while there is no file."""
    try:
        with open_file(path) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - TAIL_BYTES))
            content = stream.read(TAIL_BYTES)
    except OSError:  # none yet, or what the reader of the whole file names
        return []
    lines = content.split(b"\n")
    # The first line may be cut by the seek, the last one still be in writing.
    whole = map(json.loads, lines[1 if size > TAIL_BYTES else 0 : -1])
    return [(row["step"], row["metrics"]) for row in whole]


def wide_console(stderr: bool = False) -> Console:
    """The console of a command that prints tables: 160 columns where there is no terminal, in place of 80."""
    console = SafeConsole(stderr=stderr)
    return console if console.is_terminal else SafeConsole(stderr=stderr, width=160)


class RunsView:
    """A live table in a terminal; elsewhere a line per run now and then, and one whenever a run's state changes."""

    def __init__(self, rows: Sequence[RunRow], console: Console) -> None:
        self._rows = rows
        self._console = console
        self._live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None
        self._states: dict[str, str] = {}
        self._began = self._printed = time.perf_counter()
        self._steps_before: int | None = None

    def __enter__(self) -> RunsView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, states: Mapping[str, str]) -> None:
        """Show the runs with their states (`waiting`, `running`, `done`, ...)."""
        changed = {row.label for row in self._rows if states[row.label] != self._states.get(row.label)}
        for row in self._rows:  # files of runs that neither run nor have just ended do not change
            if states[row.label] == "running" or row.label in changed:
                row.refresh()
        if self._steps_before is None and "running" in states.values():  # no run may begin before its model is grown
            self._steps_before, self._began = sum(row.step for row in self._rows), time.perf_counter()
        self._states = dict(states)
        if self._live is not None:
            self._live.update(self._table())
            return
        due = time.perf_counter() - self._printed >= PLAIN_SECONDS
        for row in self._rows:
            state = states[row.label]
            news = row.label in changed and (state != "waiting" or len(self._rows) <= MOST_ROWS)
            if news or (due and state == "running"):
                step, *cells = row.cells()
                measured = ", ".join(f"{name} {cell}" for name, cell in zip((*COLUMNS, HELD_OUT), cells, strict=True))
                said = "" if state == "waiting" else f": step {step}, {measured}"
                self._console.print(f"run {row.label} {state}{said}", soft_wrap=True)
        if due:
            self._printed = time.perf_counter()
            self._console.print(self._summary(), soft_wrap=True)

    def _summary(self) -> str:
        """How many runs are in which state, and about how long the rest takes at the pace since one began."""
        states = list(self._states.values())
        words = ", ".join(f"{states.count(state)} {state}" for state in _URGENCY if state in states)
        done = sum(row.step for row in self._rows) - (self._steps_before or 0)
        todo = sum(row.steps - row.step for row in self._rows if self._states[row.label] in ("running", "waiting"))
        known = self._steps_before is not None and done > 0 and todo
        left = f"; about {duration((time.perf_counter() - self._began) / done * todo)} left" if known else ""
        return f"{words} of {len(states)}{left}"

    def _table(self) -> Group:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("run", "state", "step", *COLUMNS, HELD_OUT):
            table.add_column(column, justify="right")
        ranked = sorted(self._rows, key=lambda row: _URGENCY.index(self._states[row.label]))
        chosen = {row.label for row in ranked[:MOST_ROWS]}
        for row in self._rows:
            if row.label in chosen:
                table.add_row(row.label, self._states[row.label], *row.cells())
        return Group(table, Text(self._summary()))
