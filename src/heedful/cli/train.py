"""`heedful train`: the whole job: seedling, training, evaluation, report, verdict."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated

from heedful.boundary import CommandLine, Positional, Shown
from heedful.boundary.folders import make_folder
from heedful.run.config import TrainConfig
from heedful.run.presets import preset, starting_points
from heedful.run.train import Run, algorithm_name, resume, train
from heedful.stopping import exit_code
from heedful.training.ranks.parallel import ProcessRank


@dataclass(frozen=True, slots=True)
class TrainWords:
    """Train an agent with reinforcement learning, and end with a report and a verdict.

    The run measures whether the agent's reasoning still depends on its input. Started by torchrun, several processes
    share each step's episodes and its update. Each takes one GPU, or the CPU.

      heedful train frozen_lake
      heedful train frozen_lake --filter top_k --filter.k 4 --seeds 0,1,2
      heedful train --resume runs/frozen_lake-grpo-s0-1
      torchrun --nproc-per-node 2 -m heedful train frozen_lake

    The settings below show the defaults of ENV, or of frozen_lake without ENV. They can be kept in a file (--config
    FILE). Flags override the file.
    """

    env: Annotated[str | None, Positional("ENV")] = None
    """A preset or an environment (heedful envs lists them), or an environment of your own as module:Class."""
    out: Annotated[Path | None, Shown("DIR")] = None
    """The run's folder. Default: runs/<env>-<algorithm>-s<seed>-<n>."""
    seeds: Annotated[tuple[int, ...], Shown("0,1,2")] = ()
    """Train one run per seed, as processes that share one warm start, and print a table with intervals."""
    resume: Annotated[Path | None, Shown("RUN")] = None
    """Continue an interrupted run from its last checkpoint, or a folder of several seeds. Settings of a run that are
    typed beside it hold from there on."""
    take_over: bool = False
    """Take over the folder from a process on another host that has ended without releasing it."""

    def __post_init__(self) -> None:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be distinct, found {', '.join(map(str, self.seeds))}")


def main(argv: list[str]) -> int:
    line = CommandLine(TrainWords, argv, "heedful train")
    words, process = line.words, ProcessRank.of(os.environ)
    if words.resume is not None and not line.helping:
        return _resume(line, words.resume, process)
    if words.env is None and not line.helping:
        known = ", ".join(starting_points())
        raise ValueError(f"Expected an environment after `heedful train`: one of {known}, or module:Class.")
    config = line.settings(TrainConfig, preset(words.env or "frozen_lake", line.typed("model")))
    if words.seeds:
        return _train_seeds(config, words, process)
    return _code(train(config, out=words.out, take_over=words.take_over))


def _resume(line: CommandLine[TrainWords], path: Path, process: ProcessRank) -> int:
    """Go on with a run, with the settings that were typed, or with the runs of several seeds as they are."""
    words, typed = line.words, line.typed_settings()
    several = (path / "study.json").is_file()
    own = {"--resume", "--take-over", *(() if several else (f"--{name}" for name in typed))}
    others = [word for word in line.besides("resume") if word.replace("_", "-") not in own]
    if others:
        advice = "Give --resume RUN alone or with settings to change, or begin a new run."
        if several:
            advice = f"{path} holds several runs, whose settings stay: give --resume {path} alone, or begin new runs."
        raise ValueError(f"--resume takes the run's own configuration, but found also {' '.join(others)}. {advice}")
    if several:
        return _resume_seeds(words, path, process)
    config = line.settings(TrainConfig, Run.open(path).config) if typed else None
    return _code(resume(path, take_over=words.take_over, changed=config, typed=typed))


def _train_seeds(config: TrainConfig, words: TrainWords, process: ProcessRank) -> int:
    """One run per seed, as a study with a single arm."""
    seeds, out = words.seeds, words.out
    _refuse_torchrun(f"--seeds {','.join(map(str, seeds))}", process)
    from heedful.studies.catalogue.one_arm import several_seeds
    from heedful.studies.running.progress import wide_console
    from heedful.studies.running.runner import Request, run_study

    folder = out or _free_folder(f"runs/{config.env.name}-{algorithm_name(config)}-seeds")
    try:
        return run_study(Request(several_seeds(config, seeds), folder, take_over=words.take_over), wide_console())
    except ValueError:
        if out is None and not any(folder.glob("s[0-9]*")):
            shutil.rmtree(folder)  # refused before anything was computed
        raise


def _resume_seeds(words: TrainWords, path: Path, process: ProcessRank) -> int:
    _refuse_torchrun(f"--resume {path}, the folder of several runs,", process)
    from heedful.studies.running.progress import wide_console
    from heedful.studies.running.runner import Request, run_study
    from heedful.studies.study_folder import StudyFolder

    return run_study(Request(StudyFolder(path).read_study(), path, take_over=words.take_over), wide_console())


def _refuse_torchrun(what: str, process: ProcessRank) -> None:
    if process.size > 1:
        raise ValueError(
            f"{what} starts processes of its own, one for each seed, but torchrun has started {process.size} for one "
            "run: leave out torchrun, or train one seed."
        )


def _free_folder(name: str) -> Path:
    """Make the first `<name>-<n>` that there is not, from 1."""
    for number in count(1):
        path = Path(f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            make_folder(path, exist_ok=False)
            return path
    raise AssertionError("there is no last number")


def _code(run: Run) -> int:
    """128 and the signal's number for a run that was interrupted, 3 for one that an alarm stopped, else 0."""
    assert run.outcome is not None
    return exit_code(run.outcome.signal) if run.outcome.interrupted else 3 if run.outcome.stopped_by else 0
