"""`heedful audit`: the metrics of training for the logged rollouts of any trainer. The log is never changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

from heedful.audit.settings import AuditSettings
from heedful.configuration import CommandLine, Positional, Shown
from heedful.types import Metric

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from heedful.audit.steps import LoggedStep


@dataclass(frozen=True, slots=True)
class AuditWords:
    """Measure what a trainer logged, as `heedful train` measures its own runs.

    Measured are the spread of rewards within groups, success, format, the text of thoughts and, with --model, whether
    thoughts still depend on their prompts. The log is never changed. Pickles are refused: opening one can run code.

      heedful audit trl-output/completions
      heedful audit rollout_dumps --model Qwen/Qwen2.5-0.5B-Instruct --every 5
      heedful audit runs/frozen_lake-grpo-s0-1 --model runs/frozen_lake-grpo-s0-1/checkpoints/step_000040

    The checkpoint that sampled the thoughts gives the metrics of training; those of another model carry its name.
    """

    log: Annotated[str, Positional("LOG")]
    """A file or a folder: a run of heedful or its rollouts, JSON lines of the same columns, TRL completions
    (log_completions=True), verl rollouts (rollout_data_dir), verifiers traces or results, RAGEN's JSONL."""
    out: Annotated[Path | None, Shown("FOLDER")] = None
    """Where to write metrics.jsonl, audit.json and report.html; default: audits/<name>-<n>. In the folder of an
    interrupted audit of the same log the audit goes on."""


SHOWN = {
    "reward/mean": "reward",
    "success/rate": "success",
    "signal/mixed": "groups with spread",
    "text/judge_accuracy_8way": "prompt named from text, 8-way",
    "mi": "mutual information",
    "gap_per_token": "gap per token",
    "accuracy": "retrieval accuracy",
}
"""The rows of the closing table: a metric's name, or the end of the name of a first-turn metric."""
PAUSE = 5.0
"""Seconds between plain lines."""


def main(argv: list[str]) -> int:
    line = CommandLine(AuditWords, argv, "heedful audit")
    words, settings = line.words, line.settings(AuditSettings, AuditSettings())

    from rich.console import Console

    from heedful.audit import audit, open_log

    console = Console(highlight=False, markup=False, soft_wrap=True)
    log = open_log(Path(words.log), settings)
    console.print(f"{log.format} in {words.log}", style="bold")
    for sentence in log.reader.knowledge.found:
        console.print(sentence)
    for sentence in log.reader.knowledge.assumed:
        console.print(f"assumed: {sentence}")
    with _Progress(console) as progress:
        folder = audit(log, settings, words.out, progress)
    _conclude(console, folder)
    return 0


class _Progress:
    """A bar over the bytes of the log in a terminal, plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._size, self._told = 1, 0.0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, size: int) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

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


def _conclude(console: Console, folder: Path) -> None:
    """Print what was read, what was left out, and the first and last reading of the main metrics."""
    import json

    from heedful.audit.record import RECORD
    from heedful.storage import read_metrics

    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    console.print(record["found"][-1])
    left_out = record["left_out"]
    for fault in left_out["first"][:5]:
        console.print(f"{fault['file']}, line {fault['line']}: expected {fault['expected']}, found {fault['found']}")
    if left_out["count"]:
        console.print(f"lines left out: {left_out['count']} (the first are in {folder / RECORD})", style="bold")
    lines = read_metrics(folder / "metrics.jsonl")
    for name, label in SHOWN.items():
        readings = [metric for line in lines for metric in line.metrics.values() if _is(metric.name, name)]
        if readings:
            missing = f" ({readings[-1].why})" if readings[-1].value is None else ""
            console.print(f"{label:>30}: {_value(readings[0]):>8} -> {_value(readings[-1])}{missing}")
    console.print(f"page: {folder / 'report.html'}")


def _is(metric: str, name: str) -> bool:
    if "/" in name:
        return metric == name
    env, _, rest = metric.partition("/")
    return env.partition("@")[0] in ("information", "retrieval") and rest == f"first_turn/{name}"


def _value(metric: Metric | None) -> str:
    return f"{metric.value:.3f}" if metric is not None and isinstance(metric.value, int | float) else "-"
