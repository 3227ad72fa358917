"""`heedful train`: the whole job - seedling, training, evaluation, report, verdict.

Promise: a new run never touches an old one's folder; an interrupted run says how to go on.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.words import asks_for_help, take, take_positional
from heedful.configuration import from_json, parse, to_json
from heedful.distributed.parallel import Place
from heedful.run.config import TrainConfig
from heedful.run.presets import preset, starting_points
from heedful.storage import RunFolder, describe_environment, write_whole

if TYPE_CHECKING:
    from heedful.distributed.world import World
    from heedful.run.loop import Outcome

DESCRIPTION = f"""Train an agent with reinforcement learning, measure on the way whether its reasoning still depends on
the input, and end with a report and a verdict.

  heedful train ENV [--out DIR] [--seeds 0,1,2] [settings]
  heedful train --resume RUN
  torchrun --nproc-per-node N -m heedful train ...

ENV is a preset ({", ".join(starting_points())}) or an environment of your own as module:Class.
  --out DIR      the run's folder (default: runs/<env>-<algorithm>-s<seed>-<n>)
  --seeds 0,1,2  one run per seed as processes over one warm start, and a table with intervals
  --resume RUN   go on with an interrupted run where its last checkpoint stands
  torchrun       N processes share each step's episodes and its update; one GPU for each, or the CPU
The settings below show the defaults of ENV; in a file: --config FILE.json, then flags override."""


def main(argv: list[str]) -> int:
    helping = asks_for_help(argv)
    place = Place.of(os.environ)
    resume, seeds, out = take(argv, "resume"), take(argv, "seeds"), take(argv, "out")
    if resume is not None:
        if argv or seeds or out:
            raise ValueError(
                f"--resume takes the run's own configuration, but found also {' '.join(argv) or 'other flags'}. "
                "Give --resume RUN alone, or begin a new run."
            )
        return _resume(Path(resume), place)
    name = take_positional(argv)
    if name is None and not helping:
        known = ", ".join(starting_points())
        raise ValueError(f"Expected an environment after `heedful train`: one of {known}, or module:Class.")
    default = preset(name or "frozen_lake", _model_named(argv))
    config = parse(TrainConfig, default, argv, f"heedful train {name or 'ENV'}", DESCRIPTION)
    if seeds is not None:
        if place.size > 1:
            raise ValueError(
                f"--seeds {seeds} starts processes of its own, one for each seed, but torchrun has started "
                f"{place.size} for one run: leave out torchrun, or give one --seed."
            )
        from heedful.cli.seeds import run_seeds

        return run_seeds(config, _seed_list(seeds), Path(out) if out else None)
    return _run(config, partial(_new_folder, config, out), place, resume=False)


def _new_folder(config: TrainConfig, out: str | None) -> RunFolder:
    folder = (
        RunFolder.open(out)
        if out
        else RunFolder.create("runs", config.env.name, _name_of_algorithm(config), config.seed)
    )
    write_whole(folder.config, json.dumps(to_json(config), indent=2) + "\n")
    return folder


def _model_named(argv: list[str]) -> str | None:
    """The value of --model, which decides between presets, left in place."""
    copy = list(argv)
    return take(copy, "model")


def _name_of_algorithm(config: TrainConfig) -> str:
    return str(to_json(config)["algorithm"]["type"])


def _seed_list(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"Expected --seeds as whole numbers with commas, such as 0,1,2, found {text!r}.") from error
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"Expected distinct --seeds, found {text!r}.")
    return seeds


def _resume(path: Path, place: Place) -> int:
    folder = RunFolder.open(path, resume=True)
    try:
        tree = json.loads(folder.config.read_text())
    except ValueError as error:
        raise ValueError(f"The configuration {folder.config} is not JSON ({error}); restore it to resume.") from error
    return _run(from_json(TrainConfig, tree), lambda: folder, place, resume=True)


def _run(config: TrainConfig, find_folder: Callable[[], RunFolder], place: Place, resume: bool) -> int:
    # Torch is loaded here, after everything that can be refused without it has been.
    from heedful.distributed.world import Joined, local_device
    from heedful.models.load import pick_device

    device = local_device(pick_device(config.device), place)
    with Joined(place, device, config.parallel.timeout) as world:
        folder = RunFolder(world.of_first(find_folder().path if world.is_first else Path()))
        try:
            outcome = _train(config, folder, world, resume)
        except ValueError:
            if world.is_first and not resume and not _has_begun(folder):
                shutil.rmtree(folder.path)  # refused before anything was computed
            raise
    return _conclude(config, folder, outcome) if place.is_first else _code(outcome)


def _has_begun(folder: RunFolder) -> bool:
    return folder.metrics.exists() and folder.metrics.stat().st_size > 0


def _code(outcome: Outcome) -> int:
    return 130 if outcome.interrupted else 3 if outcome.stopped_by else 0


def _train(config: TrainConfig, folder: RunFolder, world: World, resume: bool) -> Outcome:
    """The run in one process. The first one shows it and keeps its record."""
    from heedful.run import checkpoint
    from heedful.run.loop import train
    from heedful.run.parts import assemble
    from heedful.run.terminal import GrowthBar, Silence, TerminalView
    from heedful.storage.trackers import JsonlTracker, open_trackers

    found = checkpoint.checkpoints(folder.path / "checkpoints") if resume and world.is_first else []
    start = world.of_first(found[-1] if found else None)
    if not world.is_first:
        silence = Silence()
        return train(config, assemble(config, silence.growth, start, world), folder, [], silence)
    version = start.version if start else 0
    view = TerminalView(config.steps, version, config.tags)
    if resume:
        folder.truncate_after(version - 1)
        view.note(f"resuming {folder.path} after step {version} of {config.steps}")
    if world.size > 1:
        held = "each with a piece of the model" if config.parallel.in_pieces else "each with the whole model"
        view.note(f"{world.size} processes, {held}")
    if not folder.environment.exists():
        found_here = describe_environment(str(world.device), config.threads, world.size)
        write_whole(folder.environment, json.dumps(found_here, indent=2) + "\n")
    trackers = [JsonlTracker(folder.metrics), *open_trackers(config.trackers, folder.path, to_json(config))]
    try:
        with GrowthBar(view.console) as bar:
            parts = assemble(config, bar, start, world)
        with view:
            return train(config, parts, folder, trackers, view)
    finally:
        for tracker in trackers:
            tracker.close()


def _conclude(config: TrainConfig, folder: RunFolder, outcome: Outcome) -> int:
    """What a person reads at the end of a run."""
    from heedful.report import write_report
    from heedful.run.terminal import TerminalView
    from heedful.run.verdict import conclude

    view = TerminalView(config.steps, outcome.version, config.tags)
    if outcome.interrupted:
        view.note(f"interrupted after step {outcome.version}, saved; go on with: heedful train --resume {folder.path}")
        return _code(outcome)
    if outcome.stopped_by:
        view.note(
            f"stopped after step {outcome.version} by {', '.join(outcome.stopped_by)}, saved; look at "
            f"{write_report(folder)}, and if you want to go on all the same: heedful train --resume {folder.path}"
        )
        return _code(outcome)
    conclusion = conclude(folder, config)
    report = write_report(folder)
    view.note("\nVerdict")
    for sentence in conclusion.sentences:
        view.console.print(f"  - {sentence}")
    view.console.print(f"  Run folder: {folder.path}\n  Report:     {report}")
    return 0
