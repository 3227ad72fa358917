"""`heedful train ENV --seeds 0,1,2`: one process per seed over one warm start, and what the seeds add up to.

Promise: every seed is an ordinary run that can be resumed and reported alone; Ctrl-C reaches all of them, and each
finishes its step and saves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from heedful.cli.seed_summary import summarise, write_list
from heedful.configuration import to_json
from heedful.run.config import TrainConfig
from heedful.storage import RunFolder, write_whole
from heedful.studies.processes import Child, at_once, run_children
from heedful.studies.progress import RunRow, RunsView

LAST_LINES = 12
"""Lines shown of the log of a seed that failed."""


@dataclass(frozen=True, slots=True)
class SeedRun:
    """One seed: its run folder, and the configuration it starts from and its log beside it."""

    seed: int
    folder: Path
    environment: str
    """The name the configuration gives to the environment."""

    @property
    def label(self) -> str:
        return str(self.seed)

    @property
    def config(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def arguments(self) -> list[str]:
        """Of the `heedful` command that runs this seed."""
        return ["train", self.environment, "--config", str(self.config), "--out", str(self.folder)]

    def child(self) -> Child:
        return Child(self.label, self.folder.with_name(f"{self.folder.name}.log"), lambda: self.arguments)


def run_seeds(config: TrainConfig, seeds: list[int], out: Path | None) -> int:
    """Train every seed and print what they add up to.

    Writes into `out` (default: `runs/<env>-<algorithm>-seeds-<n>`): a run folder `s<seed>`, its configuration and log
    beside it, `seeds.json`, `seeds.md` and `comparison.html`.

    Returns:
        0, 1 if a seed failed, 130 if interrupted, 3 if an alarm stopped a seed.

    Raises:
        ValueError: `out` holds something already, or the environment cannot be used.
    """
    console = _console()
    tree = to_json(config)
    named = RunFolder.open(out).path if out else None  # refused before the growth, not after
    _grow_once(config, console)
    parent = named or _claim("runs", f"{config.env.name}-{tree['algorithm']['type']}")
    runs = [SeedRun(seed, parent / f"s{seed}", tree["env"]["type"]) for seed in seeds]
    for run in runs:
        write_whole(run.config, json.dumps(to_json(replace(config, seed=run.seed)), indent=2) + "\n")
    write_list(parent, seeds)
    workers = at_once(config.device, config.threads)
    named_seeds = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    console.print(f"{named_seeds} in {parent}, {min(workers, len(seeds))} at a time", style="bold", soft_wrap=True)
    children = {run.seed: run.child() for run in runs}
    interrupted = _train(runs, list(children.values()), config, workers, console)
    states = {seed: child.state for seed, child in children.items()}
    failed = [seed for seed, state in states.items() if state == "failed"]
    for seed in failed:
        _show_failure(seed, children[seed], console)
    summarise(parent, console, states)
    stopped = "stopped" in states.values()
    if interrupted or stopped:
        _show_how_to_go_on(runs, states, parent, console)
    return 1 if failed else 130 if interrupted else 3 if stopped else 0


def _console() -> Console:
    """The table of seeds is wider than the 80 columns that rich assumes where there is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def _claim(root: str, name: str) -> Path:
    """Make the first free `<root>/<name>-seeds-<n>`."""
    Path(root).mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = Path(root) / f"{name}-seeds-{number}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def _grow_once(config: TrainConfig, console: Console) -> None:
    """Have the seedling in the cache before the seeds start, so that none of them grows it and all show one start."""
    if config.model != "seedling":
        return
    import torch

    from heedful.run.parts import load_policy
    from heedful.run.terminal import GrowthBar

    torch.set_num_threads(config.threads)
    with GrowthBar(console) as bar:
        load_policy(config, torch.device("cpu"), bar)


def _train(
    runs: Sequence[SeedRun], children: Sequence[Child], config: TrainConfig, workers: int, console: Console
) -> bool:
    """Run all seeds, `workers` at a time; whether they were interrupted."""
    evaluated = f"eval/{config.evaluation.split}/sampled/success"
    rows = [RunRow(run.label, RunFolder(run.folder).metrics, config.steps, evaluated) for run in runs]
    with RunsView(rows, console, "seed") as view:
        return run_children(children, workers, view.show)


def _show_failure(seed: int, child: Child, console: Console) -> None:
    console.print(
        f"seed {seed} failed (exit code {child.exit_code}); the end of {child.log}:", style="red", soft_wrap=True
    )
    for line in child.last_words(LAST_LINES):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _show_how_to_go_on(runs: Sequence[SeedRun], states: Mapping[int, str], parent: Path, console: Console) -> None:
    stopped = ", ".join(str(seed) for seed, state in states.items() if state == "stopped")
    if stopped:
        console.print(
            f"an alarm stopped seed {stopped}: what the other seeds add up to flatters the settings", style="bold"
        )
    console.print("go on with:", style="bold")
    for run in runs:
        state = states[run.seed]
        if state == "waiting" or (state == "interrupted" and not RunFolder(run.folder).config.exists()):
            console.print(f"  heedful {' '.join(run.arguments)}", markup=False, soft_wrap=True)
        elif state in ("interrupted", "stopped"):
            console.print(f"  heedful train --resume {run.folder}", markup=False, soft_wrap=True)
    console.print(f"and then, for the table of all seeds: heedful report {parent}", markup=False, soft_wrap=True)
