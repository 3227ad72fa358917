"""`heedful audit`: the metrics of training for the logged rollouts of any trainer. The log is never changed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from heedful.auditing.settings import AuditSettings
from heedful.boundary import CommandLine, Positional, Shown
from heedful.cli.report import concluded
from heedful.console import SafeConsole

if TYPE_CHECKING:
    from heedful.report.outcome import Outcome


@dataclass(frozen=True, slots=True)
class AuditWords:
    """Measure what a trainer logged, and say whether thoughts still depend on their prompts.

    A thought that no longer does is a template. Without a model the words of thoughts decide, with --model their
    log-probabilities. Also measured are success, format and the spread of rewards within groups. The log is never
    changed. Pickles are refused: opening one can run code.

      heedful audit trl-output/completions
      heedful audit trl-output/completions trl-output/trainer_state.json
      heedful audit trl-output/trainer_state.json --fail-on collapse --summary "$GITHUB_STEP_SUMMARY"
      heedful audit rollout_dumps --model Qwen/Qwen2.5-0.5B-Instruct --every 5
      heedful audit runs/frozen_lake-grpo-s0-1 --model runs/frozen_lake-grpo-s0-1/checkpoints/step_000040

    The checkpoint that sampled the thoughts gives the metrics of training. Metrics of another model have its name.
    """

    log: Annotated[str, Positional("LOG")]
    """A file or a folder. Any JSON lines or parquet with the columns `prompt` and `completion`, TRL completions
    (log_completions=True), verl rollouts (rollout_data_dir), verifiers traces or results, RAGEN's JSONL, a run of
    heedful or its rollouts."""
    scalars: Annotated[tuple[Path, ...], Positional("SCALARS")] = ()
    """Files of scalars of the same run, joined by step: trainer_state.json, TensorBoard's event files or .wandb (or
    their folder), Trackio's SQLite file, JSON lines or CSV with a step, the console of verl or TRL. LOG may itself be
    one of them."""
    out: Annotated[Path | None, Shown("FOLDER")] = None
    """Where to write metrics.jsonl, audit.json and report.html. Default: audits/<name>-<n>. In the folder of an
    interrupted audit of the same log the audit continues."""
    take_over: bool = False
    """Take over the folder from a process on another host that has ended without releasing it."""
    fail_on: tuple[str, ...] = ("never",)
    """Alarms at which the command ends with exit code 3: their names, or collapse, warning or notice for all that are
    at least that. Exit code 4: none of them could be judged."""
    json: bool = False
    """Print the outcome as one JSON object, and everything else to standard error."""
    summary: Annotated[Path | None, Shown("FILE")] = None
    """Append the outcome as Markdown to a file, such as "$GITHUB_STEP_SUMMARY"."""


def main(argv: list[str]) -> int:
    line = CommandLine(AuditWords, argv, "heedful audit")
    words, settings = line.words, line.settings(AuditSettings, AuditSettings())

    from heedful.auditing.recognised import open_log
    from heedful.auditing.run import measure_log
    from heedful.report.outcome import Outcome, named_alarms
    from heedful.watching.terminal import Terminal

    named_alarms(words.fail_on)
    console = SafeConsole(soft_wrap=True, stderr=words.json)
    log = open_log(Path(words.log), settings, words.scalars)
    console.print(f"{log.format} in {words.log}", style="bold")
    for sentence in log.reader.knowledge.found:
        console.print(sentence)
    for sentence in log.reader.knowledge.assumed:
        console.print(f"assumed: {sentence}")
    with closing(Terminal(console, log.files.size)) as terminal:
        folder = measure_log(log, settings, words.out, [terminal], words.take_over)
    outcome = Outcome.of(folder)
    conclude(console, folder, outcome)
    return concluded(outcome, words)


def conclude(console: Console, folder: Path, outcome: Outcome) -> None:
    """Print what was read and left out, the first and last reading of the main metrics, and the verdict."""
    from heedful.auditing.record import RECORD
    from heedful.boundary.jsontext import read_json
    from heedful.report.outcome import shown

    left_out = read_json(folder / RECORD)["left_out"]
    for fault in left_out["first"][:5]:
        console.print(f"{fault['file']}, line {fault['line']}: expected {fault['expected']}, found {fault['found']}")
    if left_out["count"]:
        console.print(f"lines left out: {left_out['count']} (the first are in {folder / RECORD})", style="bold")
    for words, series in outcome.figures():
        first, last = series.points[0].metric, series.points[-1].metric
        missing = f" ({last.why})" if last.value is None else ""
        console.print(f"{words:>30}: {shown(first):>8} -> {shown(last)}{missing}")
    console.print("Verdict", style="bold")
    for sentence in outcome.run.verdict.sentences if outcome.run.verdict else ():
        console.print(f"  - {sentence}")
    for sentence in outcome.told_causes():
        console.print(f"likely cause: {sentence}")
    console.print(f"page: {folder / 'report.html'}")
