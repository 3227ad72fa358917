"""An audit for Python, `heedful.audit`, and what a person sees while it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from heedful.auditing.recognised import open_log
from heedful.auditing.run import measure_log
from heedful.auditing.settings import AuditSettings
from heedful.auditing.steps import LoggedStep
from heedful.boundary import trusting
from heedful.console import SafeConsole
from heedful.report.record import stored_sentences
from heedful.storage import RunFolder, StepMetrics, read_metrics
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


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit and its folder."""

    path: Path

    @property
    def report(self) -> Path:
        """The page."""
        return RunFolder(self.path).report

    @property
    def verdict(self) -> tuple[str, ...]:
        """The sentences that head the page."""
        return stored_sentences(RunFolder(self.path).verdict)

    def metrics(self) -> list[StepMetrics]:
        """All metrics, one entry per measured step of the log."""
        return read_metrics(RunFolder(self.path).metrics)


def audit(
    log: Path | str,
    *,
    model: Path | str | None = None,
    out: Path | str | None = None,
    settings: AuditSettings | None = None,
    trust: Iterable[str] = (),
    show: bool = True,
    take_over: bool = False,
) -> Audit:
    """Measure what a trainer logged: heedful, TRL, verl, verifiers, RAGEN, or plain JSON lines.

    Args:
        log: a file or a folder of rollouts; it is only read.
        model: a causal model (folder or Hugging Face name) that scores the thoughts; without one, what needs no model
            is measured.
        out: the audit's folder; by default `audits/<name>-<n>`. In the folder of an interrupted audit of the same log
            the audit continues.
        settings: everything else that can be set.
        trust: models (a folder or a Hugging Face name) that may run code of their own. No log names code.
        show: print the progress.
        take_over: take over the folder from a process on another host that has ended.

    Raises ValueError, a sentence, where nothing can be read, or `out` holds another audit.
    """
    chosen = settings or AuditSettings()
    if model is not None:
        chosen = replace(chosen, model=str(model))
    console = SafeConsole(soft_wrap=True, quiet=not show)
    with trusting(trust), AuditProgress(console) as progress:
        folder = None if out is None else Path(out)
        return Audit(measure_log(open_log(Path(log), chosen), chosen, folder, progress, take_over))
