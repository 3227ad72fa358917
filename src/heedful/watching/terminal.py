"""The terminal of an audit or a watch: a live table of the last steps, or plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
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

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self._clock = clock
        self._live: Live | None = None
        self._rows: deque[tuple[str, ...]] = deque(maxlen=ROWS)
        self._alarms = AlarmHistory()
        self._pending = Pending(0.0)
        self._line = ""
        """Of the last step, where it was not printed yet."""
        self._told = float("-inf")

    def begin(self, folder: Path) -> None:
        if self.console.is_terminal and not self.console.quiet:
            self._live = Live(console=self.console, refresh_per_second=2, transient=True)
            self._live.start()

    def note(self, sentence: str) -> None:
        self.console.print(sentence)

    def step(self, measured: Measured) -> None:
        self._rows.append((str(measured.number), *_cells(measured.metrics)))
        groups = measured.step.groups if measured.step else ()
        episodes = sum(len(group.trajectories) for group in groups)
        said = [f"{episodes} episodes of {len(groups)} groups"] if groups else []
        said += [f"{name} {cell}" for name, cell in zip(COLUMNS, self._rows[-1][1:], strict=True) if cell != "-"]
        self._line = f"step {measured.number}: {', '.join(said)}"
        self._show(self._alarms.add(measured))

    def pending(self, pending: Pending) -> None:
        self._pending = pending
        self._show(self._alarms.wait(pending))

    def end(self, why: str) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self.console.print(self._picture())
        elif self._line:
            self.console.print(self._line)
        if why:
            self.console.print(why)

    def _show(self, raised: Sequence[Alarm]) -> None:
        if self._live is not None:
            self._live.update(self._picture())
            return
        for alarm in raised:
            self.console.print(alarm.sentence(), style=STYLES[alarm.severity])
        for cause in [each for each in self._alarms.causes() if each.alarm in {alarm.name for alarm in raised}][:1]:
            self.console.print(f"Likely cause of {cause.sentence()}")
        if self._line and self._clock() - self._told >= PAUSE:
            read = f", {self._pending.read:.0%} of the log read" if self._pending.read else ""
            self.console.print(f"{self._line}{read}")
            self._line, self._told = "", self._clock()

    def _picture(self) -> RenderableType:
        table, pending = plain_table("step", *COLUMNS), self._pending
        for row in self._rows:
            table.add_row(*row)
        if pending.open_step is not None:
            table.add_row(f"{pending.open_step}...", *_cells(pending.provisional.values()), style="dim")
        pace = f", a step every {duration(pending.interval, 1)}" if pending.interval else ""
        lines = [Text(f"last line {duration(pending.age)} ago{pace}, {pending.read:.0%} of the log read", style="dim")]
        for alarm in [*self._alarms.first.values()][-ALARMS:]:
            stands = alarm.name in self._alarms.standing
            said = f"{alarm.name}, {alarm.severity} at step {alarm.step}{'' if stands else ', over'}: {alarm.evidence}"
            lines.append(Text(said, style=STYLES[alarm.severity] if stands else "dim"))
        lines += [Text(f"likely: {cause.sentence()}") for cause in self._alarms.causes()[:1]]
        return Group(table, *lines)


def _cells(metrics: Iterable[Metric]) -> tuple[str, ...]:
    values = {metric.name: metric.value for metric in metrics}
    found = (next((values[name] for name in names if values.get(name) is not None), None) for names in COLUMNS.values())
    return tuple(f"{value:.3f}" if isinstance(value, int | float) else "-" for value in found)
