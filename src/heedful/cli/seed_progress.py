"""What a person sees while several seeds train: one row per seed, read off the seeds' own measurements.

Promise: reads files only, and little of them, so that watching costs the runs next to nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

TAIL_BYTES = 1 << 17
"""Read off the end of a metrics.jsonl: a dozen steps and more."""

PLAIN_SECONDS = 30.0
"""Between the lines that stand in for the live table where there is no terminal."""

COLUMNS = {
    "success": "success/rate",
    "kept": "filter/kept_ratio",
    "gap/tok": "information/first_turn/gap_per_token",
}
"""Column -> metric, besides step and evaluated success."""


@dataclass(slots=True)
class SeedRow:
    """What was last read of one seed's run."""

    seed: int
    metrics: Path
    steps: int
    evaluated: str
    """Name of the metric of evaluated success."""
    step: int = 0
    """Steps done."""
    readings: dict[str, float] = field(default_factory=dict)
    """By column; the last number read, which may be some steps old."""

    def refresh(self) -> None:
        """Read the end of the measurements. Without any the row stays as it is."""
        for step, readings in tail(self.metrics):
            trained = COLUMNS["success"] in readings
            self.step = max(self.step, min(step + 1 if trained else step, self.steps))
            for column, name in (*COLUMNS.items(), ("held out", self.evaluated)):
                value = number(readings.get(name))
                if value is not None:
                    self.readings[column] = value

    def cells(self) -> tuple[str, ...]:
        found = [self.readings.get(column) for column in (*COLUMNS, "held out")]
        return (f"{self.step}/{self.steps}", *("-" if value is None else f"{value:.3f}" for value in found))


def tail(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """The last whole lines of a metrics.jsonl as (step, readings), oldest first; empty while there is no file."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - TAIL_BYTES))
            content = stream.read()
    except FileNotFoundError:
        return []
    lines = content.split(b"\n")
    # The first line may be cut by the seek, the last one still be in writing.
    whole = lines[1 if size > TAIL_BYTES else 0 : -1]
    rows = [json.loads(line) for line in whole]
    return [(row["step"], row["metrics"]) for row in rows]


def number(reading: object) -> float | None:
    """The number of one reading, in either of the two forms of the file."""
    value = reading.get("value") if isinstance(reading, dict) else reading
    return float(value) if isinstance(value, int | float) else None


class SeedsView:
    """A live table in a terminal; elsewhere a line per seed now and then, and one whenever a seed's state changes."""

    def __init__(self, rows: Sequence[SeedRow], console: Console) -> None:
        self._rows = rows
        self._console = console
        self._live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None
        self._states: dict[int, str] = {}
        self._printed = time.perf_counter()

    def __enter__(self) -> SeedsView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, states: Mapping[int, str]) -> None:
        """Show every seed with its state (`waiting`, `running`, `done`, ...)."""
        for row in self._rows:
            row.refresh()
        if self._live is not None:
            self._live.update(self._table(states))
            return
        due = time.perf_counter() - self._printed >= PLAIN_SECONDS
        for row in self._rows:
            state = states[row.seed]
            if state != self._states.get(row.seed) or (due and state == "running"):
                self._console.print(self._line(row, state), soft_wrap=True)
        self._states = dict(states)
        if due:
            self._printed = time.perf_counter()

    def _line(self, row: SeedRow, state: str) -> str:
        step, *cells = row.cells()
        measured = ", ".join(f"{name} {cell}" for name, cell in zip((*COLUMNS, "held out"), cells, strict=True))
        return f"seed {row.seed} {state}" + ("" if state == "waiting" else f": step {step}, {measured}")

    def _table(self, states: Mapping[int, str]) -> Table:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("seed", "state", "step", *COLUMNS, "held out"):
            table.add_column(column, justify="right")
        for row in self._rows:
            table.add_row(str(row.seed), states[row.seed], *row.cells())
        return table
