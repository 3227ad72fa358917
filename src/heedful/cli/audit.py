"""`heedful audit`: the metrics of training for the logged rollouts of any trainer. The log is never changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console

from heedful.auditing.settings import AuditSettings
from heedful.boundary import CommandLine, Positional, Shown
from heedful.console import SafeConsole
from heedful.types import Metric


@dataclass(frozen=True, slots=True)
class AuditWords:
    """Measure what a trainer logged, and say whether thoughts still depend on their prompts.

    A thought that no longer does is a template. Without a model the words of thoughts decide, with --model their
    log-probabilities. Also measured are success, format and the spread of rewards within groups. The log is never
    changed. Pickles are refused: opening one can run code.

      heedful audit trl-output/completions
      heedful audit rollout_dumps --model Qwen/Qwen2.5-0.5B-Instruct --every 5
      heedful audit runs/frozen_lake-grpo-s0-1 --model runs/frozen_lake-grpo-s0-1/checkpoints/step_000040

    The checkpoint that sampled the thoughts gives the metrics of training. Metrics of another model have its name.
    """

    log: Annotated[str, Positional("LOG")]
    """A file or a folder. Any JSON lines or parquet with the columns `prompt` and `completion`, TRL completions
    (log_completions=True), verl rollouts (rollout_data_dir), verifiers traces or results, RAGEN's JSONL, a run of
    heedful or its rollouts."""
    out: Annotated[Path | None, Shown("FOLDER")] = None
    """Where to write metrics.jsonl, audit.json and report.html. Default: audits/<name>-<n>. In the folder of an
    interrupted audit of the same log the audit continues."""
    take_over: bool = False
    """Take over the folder from a process on another host that has ended without releasing it."""


SHOWN = {
    "reward/mean": "reward",
    "success/rate": "success",
    "signal/mixed": "groups with spread",
    "text/judge_accuracy_8way": "prompt named from words, 8-way",
    "mi": "mutual information",
    "mi_ceiling": "its ceiling",
    "gap_per_token": "gap per token",
    "accuracy": "retrieval accuracy",
    "chance": "its chance",
}
"""The rows of the closing table: a metric's name, or the end of one of the first turn."""


def main(argv: list[str]) -> int:
    line = CommandLine(AuditWords, argv, "heedful audit")
    words, settings = line.words, line.settings(AuditSettings, AuditSettings())

    from heedful.auditing.recognised import open_log
    from heedful.auditing.run import AuditProgress, measure_log

    console = SafeConsole(soft_wrap=True)
    log = open_log(Path(words.log), settings)
    console.print(f"{log.format} in {words.log}", style="bold")
    for sentence in log.reader.knowledge.found:
        console.print(sentence)
    for sentence in log.reader.knowledge.assumed:
        console.print(f"assumed: {sentence}")
    folder = measure_log(log, settings, words.out, AuditProgress(console), words.take_over)
    _conclude(console, folder)
    return 0


def _conclude(console: Console, folder: Path) -> None:
    """Print what was read and left out, the first and last reading of the main metrics, and the verdict."""
    from heedful.auditing.record import RECORD
    from heedful.boundary.jsontext import read_json
    from heedful.storage import RunFolder, read_metrics

    record = read_json(folder / RECORD)
    left_out = record["left_out"]
    for fault in left_out["first"][:5]:
        console.print(f"{fault['file']}, line {fault['line']}: expected {fault['expected']}, found {fault['found']}")
    if left_out["count"]:
        console.print(f"lines left out: {left_out['count']} (the first are in {folder / RECORD})", style="bold")
    lines = sorted(read_metrics(folder / "metrics.jsonl"), key=lambda line: line.step)
    for name, label in SHOWN.items():
        readings = [metric for line in lines for metric in line.metrics.values() if _is(metric.name, name)]
        if readings:
            missing = f" ({readings[-1].why})" if readings[-1].value is None else ""
            console.print(f"{label:>30}: {_value(readings[0]):>8} -> {_value(readings[-1])}{missing}")
    console.print("Verdict", style="bold")
    for sentence in read_json(RunFolder(folder).verdict)["sentences"]:
        console.print(f"  - {sentence}")
    console.print(f"page: {folder / 'report.html'}")


def _is(metric: str, name: str) -> bool:
    if "/" in name:
        return metric == name
    kind, _, rest = metric.partition("/")
    return kind.partition("@")[0] in ("information", "retrieval") and rest == f"first_turn/{name}"


def _value(metric: Metric | None) -> str:
    return f"{metric.value:.3f}" if metric is not None and isinstance(metric.value, int | float) else "-"
