"""`heedful eval`: success on held-out tasks, sampled and greedy, with baselines that read no input.

With a run's own settings it gives the numbers of the run's own evaluation: same tasks, same sampling noise.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.table import Table

from heedful.configuration import CommandLine, Positional, Shown, to_json
from heedful.console import SafeConsole
from heedful.diagnostics.catalogue import legend_of, mark_of
from heedful.run.evaluate import Evaluated, EvaluateSettings, evaluate_subject, settings_of
from heedful.run.subjects import Subject, find_subject, with_settings
from heedful.types import Metric


@dataclass(frozen=True, slots=True)
class EvaluateWords:
    """Measure success on held-out tasks, sampled and greedy, with 95% intervals.

    Two baselines are measured, too: a random player, and the best fixed sequence of actions, which reads nothing
    and is searched on training tasks. Samples of one task are never counted as independent.

      heedful eval runs/frozen_lake-grpo-s0-1 --checkpoint best --split test
      heedful eval runs/frozen_lake-grpo-s0-1 --env.slip 0.2
      heedful eval my_game:Maze --seedling.steps 500
      heedful eval Qwen/Qwen2.5-0.5B-Instruct frozen_lake --device auto --tasks 64

    A run has its own settings. An environment uses its preset's. Keep the split `test` for the end.
    """

    subject: Annotated[str, Positional("RUN|ENV|MODEL", example="frozen_lake")]
    """A run's folder or one of its checkpoints, an environment or preset (its untrained seedling plays), or a model (a
    folder or a Hugging Face name). A model must be causal and have a chat template, and it needs ENV."""
    environment: Annotated[str | None, Positional("ENV")] = None
    """The environment that a MODEL plays. Your own is named as module:Class."""
    checkpoint: Annotated[str | None, Shown("WHICH")] = None
    """The checkpoint of a RUN: last (default), best (by the success that the run itself measured), or a step."""
    temperature: Annotated[float | None, Shown("T")] = None
    """Temperature of the sampled episodes, short for --sampling.temperature."""


def main(argv: list[str]) -> int:
    line = CommandLine(EvaluateWords, argv, "heedful eval")
    words = line.words
    subject = find_subject(words.subject, words.environment, words.checkpoint)
    defaults = settings_of(subject)
    settings = line.settings(type(defaults), defaults, {"sampling.temperature": words.temperature})
    subject = with_settings(subject, settings)
    console = SafeConsole()
    console.print(f"Evaluating {subject.label}", style="bold", soft_wrap=True)
    for note in subject.notes:
        console.print(note, soft_wrap=True)
    evaluated = evaluate_subject(subject, settings, console)
    console.print(f"{settings.env.name}, {settings.tasks} tasks of {settings.split}", style="bold")
    console.print(_table(evaluated, settings))
    legend = legend_of(metric.name for metric in evaluated.metrics if metric.low is not None)
    if legend:
        console.print(legend, soft_wrap=True)
    if evaluated.sequence:
        console.print(f"best fixed sequence: {' || '.join(evaluated.sequence)}", soft_wrap=True)
    if settings.json is not None:
        _write(settings.json, subject, settings, evaluated)
        console.print(f"written to {settings.json}", soft_wrap=True)
    return 0


def _table(evaluated: Evaluated, settings: EvaluateSettings) -> Table:
    k = settings.samples
    rows = [
        ("sampled/success", f"sampled, temperature {settings.sampling.temperature:g}", "episodes"),
        ("sampled/any_of_group", f"solved in any of {k} samples (pass@{k})", "tasks"),
        ("greedy/success", "greedy", "tasks"),
        ("random/success", "random player", "tasks"),
        ("fixed/success", "best fixed sequence", "tasks"),
        ("sampled/valid_rate", "replies executable as written", "turns"),
        ("sampled/closed_rate", "thoughts closed", "turns"),
        ("sampled/turns", "turns per episode", "episodes"),
    ]
    readings = {metric.name.split("/", 2)[2]: metric for metric in evaluated.metrics}
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("95% interval", justify="right")
    table.add_column("n", justify="right")
    for name, label, unit in rows:
        if k == 1 and name == "sampled/any_of_group":
            continue
        table.add_row(label, *_cells(readings[name], unit))
    return table


def _cells(metric: Metric, unit: str) -> tuple[str, str, str]:
    """Value, interval and n. A missing value shows the reason."""
    if not isinstance(metric.value, int | float):
        return "-", metric.why, ""
    if metric.low is None or metric.high is None:
        return f"{metric.value:.3f}", metric.why, f"{metric.n} {unit}"
    interval = f"[{metric.low:.3f}, {metric.high:.3f}]{mark_of(metric.name)}"
    return f"{metric.value:.3f}", interval, f"{metric.n} {unit}"


def _write(path: Path, subject: Subject, settings: EvaluateSettings, evaluated: Evaluated) -> None:
    from heedful.storage import write_whole

    fields = ("value", "low", "high", "n", "why")
    tree = {
        "subject": subject.label,
        "model": str(subject.weights or subject.config.model),
        "version": subject.version,
        "settings": {name: value for name, value in to_json(settings).items() if name != "json"},
        "metrics": {metric.name: {field: getattr(metric, field) for field in fields} for metric in evaluated.metrics},
        "fixed_sequence": evaluated.sequence,
    }
    write_whole(path, json.dumps(tree, indent=1) + "\n")
