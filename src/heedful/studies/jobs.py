"""What an arm of a study does for each seed: train, sample from a fixed policy, or rank the tasks of a pool.

Promise: a job can be started again at any moment. `command` says how it is started or resumed, and `done` reads from
the files alone whether anything is left to do.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from heedful.boundary import Choice, from_json, refuse_above, refuse_below, to_json, trust_flags
from heedful.envs.common.tasks import check_same_start
from heedful.run.config import TrainConfig
from heedful.run.gradients import GradientsSettings
from heedful.seeds import stream
from heedful.storage import MOST_STEP, RunFolder, write_whole
from heedful.types import Task

FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Names of studies and arms, which name folders, too."""

OWN_NAMES = frozenset({"study.json", "runs.json", "results.json", "results.md", "study.html", "figures"})
"""What stands in a study's folder beside the folders of its arms."""

MOST_BATCHES = 100_000
"""Batches of a sampling job, and passes of a ranking, at most."""

MOST_RANKED = 100_000
"""Tasks of a ranked pool, at most. All are in one file."""


class Job(Protocol):
    """The seam: what the runner needs to know of a job. Jobs are frozen dataclasses, written and read as JSON.

    A job with a text `after` reads the run of the same seed of the arm of that name, and begins when it is over.
    """

    @property
    def steps(self) -> int:
        """How many steps the measurements count up to."""
        ...

    def with_steps(self, steps: int) -> Job:
        """The same job, shorter or longer."""
        ...

    def seeded(self, seed: int) -> TrainConfig:
        """The configuration that decides this seed's numbers: its model, device and threads, too."""
        ...

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        """Arguments of the `heedful` command that begins this seed's run in `folder`, or goes on with it.

        May write the run's configuration next to the folder.
        """
        ...

    def done(self, folder: RunFolder) -> bool:
        """Nothing is left to do in this folder."""
        ...


@runtime_checkable
class OwnRun(Protocol):
    """A job without a command of its own: `heedful study --job` calls it."""

    def run(self, folder: RunFolder, seed: int) -> int:
        """Do what is left in `folder`; the exit code: 0, or 128 and the signal that interrupted it."""
        ...


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """`heedful train` with this configuration: the folder is that of any other run."""

    config: TrainConfig = field(default_factory=TrainConfig)
    own_seedling: bool = False
    """Each seed starts from a seedling of its own; else all share one."""

    @property
    def steps(self) -> int:
        return self.config.steps

    def with_steps(self, steps: int) -> TrainingJob:
        return replace(self, config=replace(self.config, steps=steps))

    def seeded(self, seed: int) -> TrainConfig:
        return _seeded(self.config, seed, self.own_seedling)

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        if folder.config.exists():
            return ["train", "--resume", str(folder.path)]
        if has_begun(folder):
            raise ValueError(
                f"Expected the configuration of a begun run at {folder.config}, found none. Copy "
                f"{config_beside(folder)} there to go on with the run, or delete {folder.path} to begin it anew."
            )
        # What a run left behind that was killed before its configuration was written.
        shutil.rmtree(folder.path, ignore_errors=True)
        tree = to_json(self.seeded(seed))
        write_whole(config_beside(folder), json.dumps(tree, indent=2) + "\n")
        return ["train", tree["env"]["type"], "--config", str(config_beside(folder)), "--out", str(folder.path)]

    def done(self, folder: RunFolder) -> bool:
        return folder.verdict.exists()


@dataclass(frozen=True, slots=True)
class SamplingJob:
    """Play batches with the untrained policy and take the full diagnosis of each: many readings of one state.

    Batch number b is step b of the measurements. Its tasks, its sampling noise and the draws of its diagnosis have
    seeds of their own, and nothing is carried from batch to batch, so batches are independent readings of one policy.
    """

    config: TrainConfig = field(default_factory=TrainConfig)
    """`groups` prompts x `group_size` thoughts per batch; what concerns updates and evaluations is not used."""
    batches: int = 50
    forced: int = 0
    """Tasks per batch on which thoughts are forced - own, foreign and empty ones - to see whether they cause the
    answers; 0 = none."""
    own_seedling: bool = False
    """Each seed grows a seedling of its own; else all share one."""

    def __post_init__(self) -> None:
        refuse_below(self, batches=1, forced=0)
        refuse_above(self, batches=MOST_BATCHES, forced=MOST_RANKED)
        if self.forced == 1:
            raise ValueError("forced must be 0 or at least 2: a single task has no foreign thought")
        if not self.config.diagnostics.enabled:
            raise ValueError("a sampling job takes diagnoses: config.diagnostics.enabled must be true")

    @property
    def steps(self) -> int:
        return self.batches

    def with_steps(self, steps: int) -> SamplingJob:
        return replace(self, batches=steps)

    def seeded(self, seed: int) -> TrainConfig:
        config = _seeded(self.config, seed, self.own_seedling)
        # Every batch is a full measurement.
        return replace(config, diagnostics=replace(config.diagnostics, full_every=1))

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        return _own_command(self, folder, seed)

    def done(self, folder: RunFolder) -> bool:
        return folder.report.exists()

    def run(self, folder: RunFolder, seed: int) -> int:
        from heedful.studies.sampling import sample_batches

        return sample_batches(self.seeded(seed), self.batches, self.forced, folder)


@dataclass(frozen=True, slots=True)
class RankingJob:
    """Play a pool of training tasks with the untrained policy and rank them by the variance of what they earn.

    Pass number p is step p of the measurements, and `ranking.json` in the run folder holds the tasks. Each seed has a
    pool of its own. Its episodes are not those of any training.
    """

    config: TrainConfig = field(default_factory=TrainConfig)
    """`group_size` episodes per task and pass, and what the filter looks at; updates and evaluations are not used."""
    tasks: int = 512
    """Tasks of the pool."""
    passes: int = 8
    """How often the pool is played."""
    parts: int = 4
    """Parts of equal size that the ranking cuts the pool into."""
    own_seedling: bool = False
    """Each seed grows a seedling of its own; else all share one."""

    def __post_init__(self) -> None:
        refuse_below(self, passes=1, parts=2)
        refuse_above(self, passes=MOST_BATCHES, tasks=MOST_RANKED)
        if self.tasks < self.parts:
            raise ValueError(f"tasks must be at least the number of parts, {self.parts}, found {self.tasks}")
        if self.config.group_size < 2:
            raise ValueError(f"a group of {self.config.group_size} has no variance: group_size must be at least 2")

    @property
    def steps(self) -> int:
        return self.passes

    def with_steps(self, steps: int) -> RankingJob:
        """A quick look plays fewer passes, and never more."""
        return replace(self, passes=min(steps, self.passes))

    def seeded(self, seed: int) -> TrainConfig:
        return _seeded(self.config, seed, self.own_seedling)

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        return _own_command(self, folder, seed)

    def done(self, folder: RunFolder) -> bool:
        return folder.report.exists()

    def run(self, folder: RunFolder, seed: int) -> int:
        from research.ranking.playing import rank_tasks

        return rank_tasks(self.seeded(seed), self.tasks, self.passes, self.parts, folder)


@dataclass(frozen=True, slots=True)
class PartJob(TrainingJob):
    """Training on one part of a pool that another arm has ranked, for the same seed."""

    after: str = "ranking"
    """The arm that ranks the tasks."""
    part: int | None = None
    """1 = the part with the smallest variances. none = as many tasks as a part has, drawn at random from the pool."""

    def __post_init__(self) -> None:
        _refuse_no_arm(self.after)

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        from research.ranking.estimate import RANKING, read_ranking, tasks_of_part

        ranked = read_ranking(_run_read(self.after, folder).path / RANKING)
        chosen = tasks_of_part(ranked, self.part, stream(seed, "part"))
        for task in chosen:  # an arm with other knobs would train on other tasks under the same seeds
            check_same_start(Task(task.id, task.seed, "train"), self.config.env.task(task.seed))
        config = replace(self.config, task_seeds=tuple(task.seed for task in chosen))
        return TrainingJob(config, self.own_seedling).command(folder, seed)


@dataclass(frozen=True, slots=True)
class GradientsJob:
    """`heedful gradients` at checkpoints of another arm's run of the same seed, which keeps all of them."""

    config: TrainConfig = field(default_factory=TrainConfig)
    """That of the arm it reads, for its threads and device."""
    after: str = "trained"
    """The arm whose checkpoints are measured. The study keeps checkpoints."""
    checkpoints: tuple[int, ...] = (0,)
    """Steps; 0 = the policy before training."""
    measurement: GradientsSettings = field(default_factory=GradientsSettings)

    def __post_init__(self) -> None:
        _refuse_no_arm(self.after)
        if not self.checkpoints or not 0 <= min(self.checkpoints) <= max(self.checkpoints) <= MOST_STEP:
            raise ValueError(
                f"checkpoints must be steps from 0 to {MOST_STEP:,}, found {list(self.checkpoints)!r:.200}"
            )

    @property
    def steps(self) -> int:
        return max(self.checkpoints)

    def with_steps(self, steps: int) -> GradientsJob:
        """The same places in a run of another length."""
        last = max(self.steps, 1)
        return replace(self, checkpoints=tuple(sorted({round(step * steps / last) for step in self.checkpoints})))

    def seeded(self, seed: int) -> TrainConfig:
        return _seeded(self.config, seed, False)

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        return _own_command(self, folder, seed)

    def done(self, folder: RunFolder) -> bool:
        return folder.report.exists()

    def run(self, folder: RunFolder, seed: int) -> int:
        from heedful.studies.gradients_run import measure_checkpoints

        return measure_checkpoints(_run_read(self.after, folder), self.checkpoints, self.measurement, folder)


JOBS: Mapping[str, Any] = {
    "train": TrainingJob,
    "sample": SamplingJob,
    "rank": RankingJob,
    "part": PartJob,
    "gradients": GradientsJob,
}
"""The jobs a study file can name; another one as `module:Class`."""


@dataclass(frozen=True, slots=True)
class GrowthJob:
    """Put the model that a run begins with into the cache. No arm has it: the runner starts it for several arms."""

    config: TrainConfig = field(default_factory=TrainConfig)

    def run(self, folder: RunFolder, seed: int) -> int:
        import torch

        from heedful.models.load import pick_device
        from heedful.run.parts import load_policy
        from heedful.run.terminal import GrowthBar
        from heedful.studies.running.progress import wide_console

        torch.set_num_threads(self.config.threads)
        with GrowthBar(wide_console()) as bar:
            load_policy(self.config, pick_device(self.config.device), bar)
        return 0


def job_to_json(job: Job) -> dict[str, Any]:
    """The whole tree of a job; `type` names its kind."""
    kind = Choice(JOBS).name_of(type(job))
    return {"type": kind, **to_json(job)}


def job_from_json(tree: Any, kinds: Mapping[str, Any] = JOBS) -> Job:
    """A job from its tree. Raises ValueError where the kind is none of these, ConfigurationError for its settings."""
    if not isinstance(tree, dict):
        raise ValueError(f"Expected a job as a JSON object, found a {type(tree).__name__}.")
    settings = {name: value for name, value in tree.items() if name != "type"}
    try:
        kind = Choice(kinds).find(tree.get("type"))
    except LookupError as error:
        raise ValueError(f"Expected a job's `type` among {', '.join(kinds)}: {error}.") from error
    job: Job = from_json(kind, settings)
    return job


def job_trust(job: Job) -> list[str]:
    """The flags of trust that the command of a job needs."""
    kind = Choice(JOBS).name_of(type(job))
    return [*(("--trust", kind.partition(":")[0]) if ":" in kind else ()), *trust_flags(job)]


def config_beside(folder: RunFolder) -> Path:
    """Where a run's configuration is written before the run begins: `s0.json` beside `s0`."""
    return folder.path.with_name(f"{folder.path.name}.json")


def has_begun(folder: RunFolder) -> bool:
    """Whether anything was computed in this folder."""
    return folder.metrics.exists() or (folder.path / "checkpoints").exists()


def _run_read(arm: str, folder: RunFolder) -> RunFolder:
    """The run of the same seed of another arm of the study that `folder` belongs to."""
    return RunFolder(folder.path.parent.parent / arm / folder.path.name)


def refuse_name(what: str, name: str) -> None:
    """Raise ValueError for a name that cannot be that of a folder, or of one in the folder of a study."""
    if not FOLDER_NAME.fullmatch(name):
        raise ValueError(f"{what}'s name is made of at most 100 letters, digits, `_`, `-` and `.`, found {name!r:.130}")
    if name.lower() in OWN_NAMES:
        raise ValueError(f"{what} cannot have the name of a file of studies, found {name!r}")


def _refuse_no_arm(after: str) -> None:
    """Raise ValueError for what names no arm, such as a path: a job reads runs of its own study alone."""
    if not FOLDER_NAME.fullmatch(after):
        raise ValueError(f"after names an arm by letters, digits, `_`, `-` and `.`, found {after!r:.80}")


def _own_command(job: Job, folder: RunFolder, seed: int) -> list[str]:
    """The command of a job that is an `OwnRun`. Writes the job next to the folder."""
    write_whole(config_beside(folder), json.dumps(job_to_json(job), indent=2) + "\n")
    return ["study", "--job", str(config_beside(folder)), "--out", str(folder.path), "--seed", str(seed)]


def _seeded(config: TrainConfig, seed: int, own_seedling: bool) -> TrainConfig:
    config = replace(config, seed=seed)
    return replace(config, seedling=replace(config.seedling, seed=seed)) if own_seedling else config
