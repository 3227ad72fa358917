"""The terminal of an audit or a watch: a live table of the last steps, or plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from heedful.console import duration, plain_table
from heedful.diagnostics.alarms.watch import Alarm
from heedful.types import Metric
from heedful.watching.sinks import AlarmHistory, Measured, Pending, Sink

COLUMNS = {
    "reward": ("reward/mean", "trainer/reward"),
    "success": ("success/rate", "trainer/success"),
    "entropy": ("trainer/entropy", "policy/entropy_per_token"),
    "words": ("text/judge_accuracy_8way",),
    "KL": ("trainer/kl", "policy/kl_to_reference"),
    "cut": ("trainer/truncated",),
}
"""Heading -> the metric, or the one that stands for it. A new column is one row here."""
STYLES = {"collapse": "bold red", "warning": "yellow", "notice": "cyan"}
ROWS = 12
"""Steps in the live table."""
ALARMS = 6
"""Alarms and causes below it. The page has all of them."""
PAUSE = 5.0
"""Seconds between plain lines."""


class Terminal(Sink):
    """Shows one run. A missing value is a dash, and never a zero. A step that is still written to ends in `...`."""

    def __init__(self, console: Console, size: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """`size`: bytes of a log that is read from start to end, of which plain lines then say the share."""
        self.console = console
        self._size = size
        self._clock = clock
        self._live: Live | None = None
        self._rows: deque[tuple[str, ...]] = deque(maxlen=ROWS)
        self._alarms = AlarmHistory()
        self._pending: Pending | None = None
        self._line = ""
        """Of the last step, where it was not printed yet."""
        self._told = float("-inf")

    def begin(self, folder: Path) -> None:
        if self.console.is_terminal and not self.console.quiet:
            self._live = Live(console=self.console, refresh_per_second=2, transient=True)
            self._live.start()

    def note(self, sentence: str) -> None:
        if self._live is None and self._line:  # what is said now may be about that step
            self.console.print(self._line)
            self._line = ""
        self.console.print(sentence)

    def step(self, measured: Measured) -> None:
        while self._rows and int(self._rows[-1][0]) >= measured.number:  # measured again: the log has changed
            self._rows.pop()
        self._rows.append((str(measured.number), *_cells(measured.metrics)))
        said = [f"{name} {cell}" for name, cell in zip(COLUMNS, self._rows[-1][1:], strict=True) if cell != "-"]
        if step := measured.step:
            episodes = sum(len(group.trajectories) for group in step.groups)
            said = [f"{episodes} episodes of {len(step.groups)} groups", *said]
            said += [f"{min(1, step.read / self._size):.0%} of the log read"] if self._size else []
        self._line = "" if measured.replayed else f"step {measured.number}: {', '.join(said) or '-'}"
        self._show(self._alarms.add(measured))

    def pending(self, pending: Pending) -> None:
        self._pending = pending
        self._show(self._alarms.wait(pending))

    def end(self, why: str) -> None:
        self.close()
        if why:
            self.console.print(why)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self.console.print(self._picture())
        elif self._line:
            self.console.print(self._line)
        self._line = ""

    def _show(self, raised: Sequence[Alarm]) -> None:
        if self._live is not None:
            self._live.update(self._picture())
            return
        for alarm in raised:
            self.console.print(alarm.sentence(), style=STYLES[alarm.severity])
        if self._line and self._clock() - self._told >= PAUSE:
            self.console.print(self._line)
            self._line, self._told = "", self._clock()

    def _picture(self) -> RenderableType:
        table, lines = plain_table("step", *COLUMNS), list[Text]()
        for row in self._rows:
            table.add_row(*row)
        if pending := self._pending:
            pace = f", a step every {duration(pending.interval, 1)}" if pending.interval else ""
            lines.append(Text(f"last line {duration(pending.age)} ago{pace}", style="dim"))
            if pending.open_step is not None and f"{pending.open_step}" not in {row[0] for row in self._rows}:
                table.add_row(f"{pending.open_step}...", *_cells(pending.provisional.values()), style="dim")
        for alarm in [*self._alarms.first.values()][-ALARMS:]:
            stands = alarm.name in self._alarms.standing
            said = f"{alarm.name}, {alarm.severity} at step {alarm.step}{'' if stands else ', over'}: {alarm.evidence}"
            lines.append(Text(said, style=STYLES[alarm.severity] if stands else "dim"))
        lines += [Text(f"likely: {cause.sentence()}") for cause in self._alarms.causes()[:1]]
        below = Table.grid()  # wraps lines, which the console does not
        for line in lines:
            below.add_row(line)
        return Group(table, below)


def _cells(metrics: Iterable[Metric]) -> tuple[str, ...]:
    values = {metric.name: metric.number for metric in metrics}
    found = (next((values[name] for name in names if values.get(name) is not None), None) for names in COLUMNS.values())
    return tuple("-" if value is None else f"{value:.3f}" for value in found)
