"""`heedful train`: the whole job: seedling, training, evaluation, report, verdict."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.boundary import CommandLine, Distinct, Positional, Shown, tell
from heedful.run.config import TrainConfig
from heedful.run.forecast import Gpu, of_whole_run
from heedful.run.presets import SHAPES, preset, starting_points
from heedful.run.train import Run, algorithm_name, config_at, resume, train
from heedful.stopping import exit_code
from heedful.storage import claim_folder
from heedful.training.ranks.parallel import ProcessRank

if TYPE_CHECKING:
    from heedful.studies.declaration import Study


@dataclass(frozen=True, slots=True)
class TrainWords:
    """Train an agent with reinforcement learning, and end with a report and a verdict.

    The run measures whether the agent's reasoning still depends on its input. Started by torchrun, several processes
    share each step's episodes and its update. Each takes one GPU, or the CPU.

      heedful train frozen_lake
      heedful train frozen_lake --filter top_k --filter.k 4 --seeds 0,1,2
      heedful train --resume runs/frozen_lake-grpo-s0-1
      heedful train --resume runs/frozen_lake-grpo-s0-1 --checkpoint 40 --algorithm.kl 0.01
      torchrun --nproc-per-node 2 -m heedful train frozen_lake

    The settings below show the defaults of ENV, or of frozen_lake without ENV. They can be kept in a file (--config
    FILE). Flags override the file.
    """

    env: Annotated[str | None, Positional("ENV")] = None
    """A preset or an environment (heedful envs lists them), or an environment of your own as module:Class."""
    out: Annotated[Path | None, Shown("DIR")] = None
    """The new run's folder. Default: runs/<env>-<algorithm>-s<seed>-<n>."""
    seeds: Annotated[tuple[int, ...], Distinct(), Shown("0,1,2")] = ()
    """Train one run per seed, as processes that share one warm start, and print a table with intervals."""
    resume: Annotated[Path | None, Shown("RUN")] = None
    """Continue an interrupted run from its last checkpoint, or a folder of several seeds. Settings of a run that are
    typed beside it hold from there on."""
    checkpoint: Annotated[str | None, Shown("WHICH")] = None
    """With --resume RUN: go back to this checkpoint (a step, last or best), and on from there in a new folder, which
    --out may name. RUN stays as it is."""
    estimate: Annotated[Gpu | None, Shown("GPU")] = None
    """Print the memory, tokens and hours that the run would take on this GPU, by formula, and end."""
    take_over: bool = False
    """Take over the folder from a process on another host that has ended without releasing it."""

    def __post_init__(self) -> None:
        if self.checkpoint is not None and self.resume is None:
            raise ValueError("--checkpoint belongs to a run: name it with --resume RUN")


def main(argv: list[str]) -> int:
    line = CommandLine(TrainWords, argv, "heedful train")
    words = line.words
    if words.resume is not None and not line.helping:
        return _resume(line, words.resume)
    if words.env is None and not line.helping:
        known = ", ".join(starting_points())
        raise ValueError(f"Expected an environment after `heedful train`: one of {known}, or module:Class.")
    tags = any(line.typed(f"tags.{name}") for name in ("open", "close", "answer-open", "answer-close"))
    also = {"tags.of-model": "false" if tags else None}  # tags that are typed win, the usual ones included
    config = line.settings(TrainConfig, preset(words.env or "frozen_lake", line.typed("model")), also)
    if words.estimate is not None:
        from heedful.models.load import without_weights

        model = without_weights(config.model, config.dtype, SHAPES.get(config.model))
        tell(of_whole_run(config, model, words.estimate))
        return 0
    if not words.seeds:
        return _code(train(config, out=words.out, take_over=words.take_over))
    from heedful.studies.declared import several_seeds

    _refuse_torchrun(f"--seeds {','.join(map(str, words.seeds))}")
    name = f"{config.env.name}-{algorithm_name(config)}-seeds"
    folder = words.out or claim_folder(Path("runs") / f"{name}-{number}" for number in count(1))
    try:
        return _run_seeds(several_seeds(config, words.seeds), folder, words.take_over)
    except ValueError:
        if words.out is None and not any(folder.glob("s[0-9]*")):
            shutil.rmtree(folder)  # refused before anything was computed
        raise


def _resume(line: CommandLine[TrainWords], path: Path) -> int:
    """Go on with a run, with the settings that were typed, or with the runs of several seeds as they are."""
    words, typed = line.words, line.typed_settings()
    several = (path / "study.json").is_file()
    own = {"--resume", "--take-over", *(() if several else (f"--{name}" for name in typed))}
    if words.checkpoint is not None and not several:
        own |= {"--checkpoint", "--out"}
    others = [word for word in line.besides("resume") if word.replace("_", "-") not in own]
    if others:
        advice = "Give --resume RUN alone or with settings to change, or begin a new run."
        if several:
            advice = f"{path} holds several runs, whose settings stay: give --resume {path} alone, or begin new runs."
        raise ValueError(f"--resume takes the run's own configuration, but found also {' '.join(others)}. {advice}")
    if several:
        from heedful.studies.study_folder import StudyFolder

        _refuse_torchrun(f"--resume {path}, the folder of several runs,")
        return _run_seeds(StudyFolder(path).read_study(), path, words.take_over)
    run = Run.open(path)
    before = run.config if words.checkpoint is None else config_at(run, words.checkpoint)[0]
    config = line.settings(TrainConfig, before) if typed else None
    which, out = words.checkpoint, words.out
    return _code(resume(path, take_over=words.take_over, changed=config, typed=typed, checkpoint=which, out=out))


def _run_seeds(study: Study, folder: Path, take_over: bool) -> int:
    """One run per seed, as a study with a single arm."""
    from heedful.studies.running.progress import wide_console
    from heedful.studies.running.runner import Request, run_study

    return run_study(Request(study, folder, take_over=take_over), wide_console())


def _refuse_torchrun(what: str) -> None:
    process = ProcessRank.of(os.environ)
    if process.size > 1:
        raise ValueError(
            f"{what} starts processes of its own, one for each seed, but torchrun has started {process.size} for one "
            "run: leave out torchrun, or train one seed."
        )


def _code(run: Run) -> int:
    """128 and the signal's number for a run that was interrupted, 3 for one that an alarm stopped, else 0."""
    assert run.outcome is not None
    return exit_code(run.outcome.signal) if run.outcome.interrupted else 3 if run.outcome.stopped_by else 0
