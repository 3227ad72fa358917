"""`heedful eval`: success on held-out tasks, sampled and greedy, with baselines that read no input.

With a run's own settings it gives the numbers of the run's own evaluation: same tasks, same sampling noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.boundary import CommandLine, Positional, Shown, to_json
from heedful.console import SafeConsole
from heedful.diagnostics.actions.rightness import carriers
from heedful.diagnostics.catalogue import legend_of
from heedful.run.evaluation.evaluate import evaluate_subject, settings_of
from heedful.run.evaluation.held_out import any_scored, write_numbers
from heedful.run.evaluation.subjects import find_subject, with_settings
from heedful.run.terminal import success_table


@dataclass(frozen=True, slots=True)
class EvaluateWords:
    """Measure success on held-out tasks, sampled and greedy, with 95% intervals.

    Two baselines are measured, too: a random player, and the best fixed sequence of actions, which reads nothing
    and is searched on training tasks. Samples of one task are never counted as independent.

      heedful eval runs/frozen_lake-grpo-s0-1 --checkpoint best --split test
      heedful eval runs/frozen_lake-grpo-s0-1 --env.slip 0.2
      heedful eval my_game:Maze --seedling.steps 500
      heedful eval Qwen/Qwen2.5-0.5B-Instruct frozen_lake --device auto --tasks 64
      heedful eval bandit --server http://127.0.0.1:8000 --model-name policy --tokenizer Qwen/Qwen2.5-0.5B-Instruct

    A run has its own settings. An environment uses its preset's. Keep the split `test` for the end. With --server, a
    model of any OpenAI-compatible server plays ENV, and its episodes are kept in a folder to be audited.

    Exit codes: 0 done, 1 the environment broke in every episode, 2 bad input.
    """

    subject: Annotated[str, Positional("RUN|ENV|MODEL", example="frozen_lake")]
    """A run's folder or one of its checkpoints, an environment or preset (its untrained seedling plays), or a model (a
    folder, smollm2 or a Hugging Face name). A model must be causal and have a chat template. It needs ENV."""
    environment: Annotated[str | None, Positional("ENV")] = None
    """The environment that a MODEL plays. Your own is named as module:Class."""
    checkpoint: Annotated[str | None, Shown("WHICH")] = None
    """The checkpoint of a RUN: last (default), best (by the success that the run itself measured), or a step."""
    temperature: Annotated[float | None, Shown("T")] = None
    """Temperature of the sampled episodes, short for --sampling.temperature."""
    server: Annotated[str | None, Shown("URL")] = None
    """An OpenAI-compatible server, such as http://127.0.0.1:8000, whose model plays ENV."""
    model_name: Annotated[str | None, Shown("NAME")] = None
    """The name of the model on the server."""
    tokenizer: Annotated[str | None, Shown("DIR")] = None
    """The tokenizer of the served model, a folder or a Hugging Face name: then ids go out and come back, with
    log-probabilities. Without it, messages go out and text comes back, and nothing of ids is measured."""
    out: Annotated[Path | None, Shown("FOLDER")] = None
    """With --server: where to write. Default: evals/<env>-<model>-<n>. An interrupted evaluation goes on in its
    folder."""
    take_over: bool = False
    """With --server: take over the folder from a process on another host that has ended without releasing it."""


def main(argv: list[str]) -> int:
    line = CommandLine(EvaluateWords, argv, "heedful eval")
    words = line.words
    if words.server is not None:
        from heedful.cli.served_model import evaluate_server

        return evaluate_server(line)
    alone = [
        name for name in ("model_name", "tokenizer", "out", "take_over") if getattr(words, name) not in (None, False)
    ]
    if alone:
        raise ValueError(f"--{alone[0].replace('_', '-')} is for a served model; name its server with --server URL.")
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
    console.print(success_table(evaluated.metrics, settings.samples, settings.sampling.temperature))
    by_name = {metric.name: metric for metric in evaluated.metrics}
    for kind in ("sampled", "greedy"):
        for label in ("right", "worth"):
            if (told := carriers(by_name, f"eval/{settings.split}/{kind}/", (label,))) is not None:
                console.print(f"{kind} thoughts: {told[0]}.", soft_wrap=True)
    legend = legend_of(evaluated.metrics)
    if legend:
        console.print(legend, soft_wrap=True)
    for sentence in evaluated.broken:
        console.print(sentence, soft_wrap=True)
    if evaluated.sequence:
        console.print(f"best fixed sequence: {' || '.join(evaluated.sequence)}", soft_wrap=True)
    if settings.json is not None:
        about = {
            "subject": subject.label,
            "model": str(subject.weights or subject.config.model),
            "version": subject.version,
            "settings": {name: value for name, value in to_json(settings).items() if name != "json"},
        }
        write_numbers(settings.json, about, evaluated.metrics, evaluated.sequence)
        console.print(f"written to {settings.json}", soft_wrap=True)
    return 0 if any_scored(evaluated.metrics) else 1
