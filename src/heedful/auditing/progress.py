"""What a person sees while an audit goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from heedful.auditing.steps import LoggedStep
from heedful.types import Metric

PAUSE = 5.0
"""Seconds between plain lines."""


class AuditProgress:
    """A bar over the bytes of the log in a terminal, plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._size, self._told = 1, 0.0

    def __enter__(self) -> AuditProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, size: int) -> None:
        self._size = max(1, size)
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.add_task("reading", total=self._size)
            self._bar.start()

    def step(self, step: LoggedStep, metrics: Sequence[Metric]) -> None:
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step.read, description=f"step {step.number}")
        elif now - self._told >= PAUSE:
            self._told = now
            share = min(100, round(100 * step.read / self._size))
            reward = next((metric for metric in metrics if metric.name == "reward/mean"), None)
            self._console.print(
                f"step {step.number}: {step.episodes} episodes of {len(step.groups)} groups, reward "
                f"{_value(reward)}, {share}% of the log read"
            )

    def note(self, sentence: str) -> None:
        self._console.print(sentence)


def _value(metric: Metric | None) -> str:
    return f"{metric.value:.3f}" if metric is not None and isinstance(metric.value, int | float) else "-"
