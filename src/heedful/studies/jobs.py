"""What an arm of a study does for each seed: train, or sample from a fixed policy.

Promise: a job can be started again at any moment. `command` says how it is started or resumed, and `done` reads from
the files alone whether anything is left to do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from heedful.configuration import Choice, from_json, refuse_below, to_json, trust_flags
from heedful.run.config import TrainConfig
from heedful.storage import RunFolder, write_whole


class Job(Protocol):
    """The seam: what the runner needs to know of a job. Jobs are frozen dataclasses, written and read as JSON."""

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
        write_whole(config_beside(folder), json.dumps(job_to_json(self), indent=2) + "\n")
        return ["study", "--job", str(config_beside(folder)), "--out", str(folder.path), "--seed", str(seed)]

    def done(self, folder: RunFolder) -> bool:
        return folder.report.exists()

    def run(self, folder: RunFolder, seed: int) -> int:
        """Sample what is missing in `folder`; the exit code: 0, or 128 and the signal between two batches."""
        from heedful.studies.sampling import sample_batches

        return sample_batches(self.seeded(seed), self.batches, self.forced, folder)


JOBS: Mapping[str, Any] = {"train": TrainingJob, "sample": SamplingJob}
"""The jobs a study file can name; another one as `module:Class`."""


def job_to_json(job: Job) -> dict[str, Any]:
    """The whole tree of a job; `type` names its kind."""
    kind = Choice(JOBS).name_of(type(job))
    return {"type": kind, **to_json(job)}


def job_from_json(tree: Mapping[str, Any]) -> Job:
    """A job from its tree. Raises ValueError where the kind is unknown, ConfigurationError for its settings."""
    settings = {name: value for name, value in tree.items() if name != "type"}
    try:
        kind = Choice(JOBS).find(tree.get("type"))
    except LookupError as error:
        raise ValueError(f"Expected a job's `type` among {', '.join(JOBS)}: {error}.") from error
    job: Job = from_json(kind, settings)
    return job


def job_trust(job: Job) -> list[str]:
    """The flags of trust that the command of a job needs."""
    kind = Choice(JOBS).name_of(type(job))
    return [*(("--trust", kind.partition(":")[0]) if ":" in kind else ()), *trust_flags(job)]


def config_beside(folder: RunFolder) -> Path:
    """Where a run's configuration is written before the run begins: `s0.json` beside `s0`."""
    return folder.path.with_name(f"{folder.path.name}.json")


def _seeded(config: TrainConfig, seed: int, own_seedling: bool) -> TrainConfig:
    config = replace(config, seed=seed)
    return replace(config, seedling=replace(config.seedling, seed=seed)) if own_seedling else config
