"""`heedful gradients`: signal and noise of a run's gradient, and the pull of its regularisers, by reward variance.

The run is not changed. Fresh episodes of training tasks are played with its checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from heedful.boundary import CommandLine, Positional, Shown
from heedful.run.config import TrainConfig, read_config
from heedful.run.evaluation.subjects import choose_checkpoint, find_subject, is_checkpoint
from heedful.run.gradients import GradientsSettings, measure_gradients
from heedful.storage import RunFolder, is_run


@dataclass(frozen=True, slots=True)
class GradientsWords:
    """Measure signal and noise of the policy gradient at a checkpoint, by the variance of rewards.

    Fresh episodes of training tasks are played, and the gradient of every trajectory is taken: of the task, of the KL
    penalty and of the entropy bonus. Groups are sorted by the variance of their rewards. For each bucket the squared
    signal and the squared noise are estimated without bias, with 95% intervals over groups.

      heedful train frozen_lake --keep-checkpoints all
      heedful gradients runs/frozen_lake-grpo-s0-1 --checkpoint 0,40,80

    The run's folder gets gradients_<step>.json, and gradients.html over all of them. In training,
    `heedful train ENV --gradients.every 20` measures the groups of every 20th step.

    With --attribute: replay the update of a checkpoint's step, and split what it did to the information in thoughts and
    to success by the terms of the loss. Fresh episodes read it, and the measured change stands beside it.

      heedful gradients runs/chain-grpo-s0-1 --attribute --checkpoint 3,9
    """

    run: Annotated[str, Positional("RUN")]
    """The folder of a run, or one of its checkpoints."""
    checkpoint: Annotated[tuple[str, ...], Shown("A,B")] = ()
    """Checkpoints of the run: steps, last (default) or best. 0 is the policy before training. A run keeps the last two
    and the best, or every one with --keep-checkpoints all. By default --attribute
    takes all whose episodes are stored."""
    attribute: bool = False
    """Split the update after each checkpoint by the terms of the loss."""


def main(argv: list[str]) -> int:
    line = CommandLine(GradientsWords, argv, "heedful gradients")
    settings = line.settings(GradientsSettings, GradientsSettings())
    folder, config, steps = _chosen(line.words.run, line.words.checkpoint, line.words.attribute)
    config = replace(config, threads=settings.threads or config.threads, device=settings.device or config.device)

    from heedful.console import SafeConsole, plain_table
    from heedful.report.attribution import parts_table, told, write_attribution_page
    from heedful.report.gradients import TABLES, sentences, table, write_gradients_page
    from heedful.run.attribution import attribute_update
    from heedful.storage import read_gradients

    console = SafeConsole()
    if not console.is_terminal:
        console.width = 160  # a log has room for a table
    for step in steps:
        if line.words.attribute:
            attribute_update(folder, config, step, settings.attribution, settings.seed, console)
            path = folder.attribution(step)
            stored = read_gradients(path)
            tables, said = [("the change of each reading in this update, by part", parts_table(stored))], told(stored)
        else:
            measure_gradients(folder, config, step, settings, console)
            path = folder.gradients(step)
            stored = read_gradients(path)
            tables, said = [(title, table(stored, columns)) for title, columns in TABLES], sentences(stored)
        for title, (headings, *rows) in tables:
            shown = plain_table(*headings)
            for row in rows:
                shown.add_row(*row)
            console.print(f"Step {step}: {title}", style="bold")
            console.print(shown)
        for sentence in said:
            console.print(sentence, soft_wrap=True)
        console.print(f"written to {path}", soft_wrap=True)
    page = write_attribution_page(folder) if line.words.attribute else write_gradients_page(folder)
    console.print(f"page: {page}", soft_wrap=True)
    return 0


def _chosen(name: str, checkpoints: tuple[str, ...], attribute: bool) -> tuple[RunFolder, TrainConfig, list[int]]:
    """The run, its configuration, and the steps to measure at."""
    path = Path(name)
    if not is_run(path):
        if not is_checkpoint(path):
            raise ValueError(
                f"Expected the folder of a run, or one of its checkpoints, found {name}: a gradient belongs to an "
                "algorithm, which only a run has. Train first: heedful train ENV."
            )
        subject = find_subject(name, None, ",".join(checkpoints) or None)
        return RunFolder(path.parent.parent), subject.config, [subject.version]
    folder = RunFolder(path)
    config = read_config(folder)
    if attribute and not checkpoints:
        stored = {0, *folder.checkpoint_steps()} & set(folder.rollout_steps())
        return folder, config, sorted(stored - {0}) or sorted(stored)
    steps = [
        0 if choice == "0" else choose_checkpoint(folder, config, choice)[0] for choice in checkpoints or ("last",)
    ]
    return folder, config, sorted(set(steps))
