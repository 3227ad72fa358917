"""`heedful train`: the whole job of seedling, training, evaluation, report and verdict.

Promise: a new run never writes into an old one's folder, and an interrupted run says how to go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.configuration import CommandLine, Positional, Shown, from_json, to_json
from heedful.distributed.parallel import Place
from heedful.run.config import TrainConfig
from heedful.run.presets import preset, starting_points
from heedful.storage import RunFolder, describe_environment, write_whole

if TYPE_CHECKING:
    from heedful.distributed.world import World
    from heedful.run.loop import Outcome


@dataclass(frozen=True, slots=True)
class TrainWords:
    """Train an agent with reinforcement learning, and end with a report and a verdict.

    The run measures whether the agent's reasoning still depends on its input. Several processes share each step's
    episodes and its update when the command is started by torchrun; each takes one GPU, or the CPU.

      heedful train frozen_lake
      heedful train frozen_lake --filter top_k --filter.k 4 --seeds 0,1,2
      heedful train --resume runs/frozen_lake-grpo-s0-1
      torchrun --nproc-per-node 2 -m heedful train frozen_lake

    The settings below show the defaults of ENV, without one those of frozen_lake. They can be kept in a file (--config
    FILE); flags override the file.
    """

    env: Annotated[str | None, Positional("ENV")] = None
    """A preset or an environment (heedful envs lists them), or an environment of your own as module:Class."""
    out: Annotated[Path | None, Shown("DIR")] = None
    """The run's folder; default: runs/<env>-<algorithm>-s<seed>-<n>."""
    seeds: Annotated[tuple[int, ...], Shown("0,1,2")] = ()
    """Train one run per seed, as processes that share one warm start, and print a table with intervals."""
    resume: Annotated[Path | None, Shown("RUN")] = None
    """Go on with an interrupted run from its last checkpoint, or with the folder of several seeds. No other flag is
    allowed."""

    def __post_init__(self) -> None:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be distinct, found {', '.join(map(str, self.seeds))}")


def main(argv: list[str]) -> int:
    line = CommandLine(TrainWords, argv, "heedful train")
    words, place = line.words, Place.of(os.environ)
    if words.resume is not None and not line.helping:
        others = line.besides("resume")
        if others:
            raise ValueError(
                f"--resume takes the run's own configuration, but found also {' '.join(others)}. "
                "Give --resume RUN alone, or begin a new run."
            )
        return _resume(words.resume, place)
    if words.env is None and not line.helping:
        known = ", ".join(starting_points())
        raise ValueError(f"Expected an environment after `heedful train`: one of {known}, or module:Class.")
    config = line.settings(TrainConfig, preset(words.env or "frozen_lake", line.typed("model")))
    if words.seeds:
        return _train_seeds(config, words.seeds, words.out, place)
    return _run(config, partial(_new_folder, config, words.out), place, resume=False)


def _new_folder(config: TrainConfig, out: Path | None) -> RunFolder:
    folder = (
        RunFolder.open(out)
        if out
        else RunFolder.create("runs", config.env.name, _name_of_algorithm(config), config.seed)
    )
    write_whole(folder.config, json.dumps(to_json(config), indent=2) + "\n")
    return folder


def _name_of_algorithm(config: TrainConfig) -> str:
    return str(to_json(config)["algorithm"]["type"])


def _train_seeds(config: TrainConfig, seeds: Sequence[int], out: Path | None, place: Place) -> int:
    """One run per seed, as a study with a single arm."""
    _refuse_torchrun(f"--seeds {','.join(map(str, seeds))}", place)
    from heedful.studies.catalogue import several_seeds
    from heedful.studies.progress import wide_console
    from heedful.studies.runner import Request, run_study

    folder = out or _free_folder(f"runs/{config.env.name}-{_name_of_algorithm(config)}-seeds")
    try:
        return run_study(Request(several_seeds(config, seeds), folder), wide_console())
    except ValueError:
        if out is None and not any(folder.glob("s[0-9]*")):
            shutil.rmtree(folder)  # refused before anything was computed
        raise


def _resume_seeds(path: Path, place: Place) -> int:
    _refuse_torchrun(f"--resume {path}, the folder of several runs,", place)
    from heedful.studies.progress import wide_console
    from heedful.studies.runner import Request, run_study
    from heedful.studies.study_folder import StudyFolder

    return run_study(Request(StudyFolder(path).read_study(), path), wide_console())


def _refuse_torchrun(what: str, place: Place) -> None:
    if place.size > 1:
        raise ValueError(
            f"{what} starts processes of its own, one for each seed, but torchrun has started {place.size} for one "
            "run: leave out torchrun, or train one seed."
        )


def _free_folder(name: str) -> Path:
    """Make the first `<name>-<n>` that there is not, from 1."""
    for number in count(1):
        path = Path(f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir(parents=True)
            return path
    raise AssertionError("there is no last number")


def _resume(path: Path, place: Place) -> int:
    if (path / "study.json").is_file():
        return _resume_seeds(path, place)
    folder = RunFolder.open(path, resume=True)
    try:
        tree = json.loads(folder.config.read_text())
    except ValueError as error:
        raise ValueError(f"The configuration {folder.config} is not JSON ({error}); restore it to resume.") from error
    return _run(from_json(TrainConfig, tree), lambda: folder, place, resume=True)


def _run(config: TrainConfig, find_folder: Callable[[], RunFolder], place: Place, resume: bool) -> int:
    # Torch is loaded here, after every check that needs no torch.
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
    """Run one process of the training. The first process shows the run and writes its files."""
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
    """Print the end of a run: its verdict, or how to go on; returns the exit code."""
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
