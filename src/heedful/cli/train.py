"""`heedful train`: the whole job: seedling, training, evaluation, report, verdict."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.configuration import CommandLine, Positional, Shown
from heedful.distributed.parallel import ProcessRank
from heedful.run.config import TrainConfig
from heedful.run.presets import preset, starting_points
from heedful.run.train import Run, resume, train


@dataclass(frozen=True, slots=True)
class TrainWords:
    """Train an agent with reinforcement learning, and end with a report and a verdict.

    The run measures whether the agent's reasoning still depends on its input. Several processes share each step's
    episodes and its update when the command is started by torchrun; each takes one GPU, or the CPU.

      heedful train frozen_lake
      heedful train frozen_lake --filter top_k --filter.k 4 --seeds 0,1,2
      heedful train --resume runs/frozen_lake-grpo-s0-1
      torchrun --nproc-per-node 2 -m heedful train frozen_lake

    The settings below show the defaults of ENV. They can be kept in a file (--config FILE); flags override the file.
    """

    env: Annotated[str | None, Positional("ENV")] = None
    """A preset or an environment (heedful envs lists them), or an environment of your own as module:Class."""
    out: Annotated[Path | None, Shown("DIR")] = None
    """The run's folder; default: runs/<env>-<algorithm>-s<seed>-<n>."""
    seeds: Annotated[tuple[int, ...], Shown("0,1,2")] = ()
    """Train one run per seed, as processes that share one warm start, and print a table with intervals."""
    resume: Annotated[Path | None, Shown("RUN")] = None
    """Go on with an interrupted run from its last checkpoint. No other flag is allowed."""

    def __post_init__(self) -> None:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be distinct, found {', '.join(map(str, self.seeds))}")


def main(argv: list[str]) -> int:
    line = CommandLine(TrainWords, argv, "heedful train")
    words, process = line.words, ProcessRank.of(os.environ)
    if words.resume is not None and not line.helping:
        others = line.besides("resume")
        if others:
            raise ValueError(
                f"--resume takes the run's own configuration, but found also {' '.join(others)}. "
                "Give --resume RUN alone, or begin a new run."
            )
        return _code(resume(words.resume))
    if words.env is None and not line.helping:
        known = ", ".join(starting_points())
        raise ValueError(f"Expected an environment after `heedful train`: one of {known}, or module:Class.")
    config = line.settings(TrainConfig, preset(words.env or "frozen_lake", line.typed("model")))
    if words.seeds:
        if process.size > 1:
            raise ValueError(
                f"--seeds {','.join(map(str, words.seeds))} starts processes of its own, one for each seed, but "
                f"torchrun has started {process.size} for one run: leave out torchrun, or give one --seed."
            )
        from heedful.cli.seeds import run_seeds

        return run_seeds(config, list(words.seeds), words.out)
    return _code(train(config, out=words.out))


def _code(run: Run) -> int:
    """130 for a run that was interrupted, 3 for one that an alarm stopped, else 0."""
    assert run.outcome is not None
    return 130 if run.outcome.interrupted else 3 if run.outcome.stopped_by else 0
