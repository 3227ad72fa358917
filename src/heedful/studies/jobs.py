"""What an arm of a study does for each seed: it trains, or what another kind of job does.

Promise: a job can be started again at any moment. `command` says how it is started or resumed, and `done` reads from
the files alone whether anything is left to do.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

from heedful.boundary import Choice, parse, to_json, trust_flags, trust_needed
from heedful.run.config import TrainConfig
from heedful.stopping import exit_code
from heedful.storage import RunFolder, write_whole

FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Names of studies and arms, which name folders, too."""

OWN_NAMES = frozenset({"study.json", "runs.json", "results.json", "results.md", "study.html", "figures"})
"""What stands in a study's folder beside the folders of its arms."""


@runtime_checkable
class Runnable(Protocol):
    """A job without a command of its own: `heedful study --job` calls it."""

    def run(self, folder: RunFolder, seed: int) -> int:
        """Do what is left in `folder`; the exit code: 0, or 128 and the signal that interrupted it."""
        ...


@dataclass(frozen=True, slots=True)
class OwnJob:
    """The seam: what the runner needs to know of a job. Jobs are frozen dataclasses, written and read as JSON.

    A kind of your own adds `run`, and replaces `steps` and `with_steps` where it does not count the steps of training.
    A job with a text `after` reads the run of the same seed of the arm of that name, and begins when it is over. A text
    `about` says in `heedful study NAME --help` what it does.
    """

    config: TrainConfig = field(default_factory=TrainConfig)
    own_seedling: bool = False
    """Each seed starts from a seedling of its own; else all share one."""

    @property
    def steps(self) -> int:
        """How many steps the measurements count up to."""
        return self.config.steps

    def with_steps(self, steps: int) -> OwnJob:
        """The same job, shorter or longer."""
        return replace(self, config=replace(self.config, steps=steps))

    def seeded(self, seed: int) -> TrainConfig:
        """The configuration that decides this seed's numbers: its model, device and threads, too."""
        config = replace(self.config, seed=seed)
        return replace(config, seedling=replace(config.seedling, seed=seed)) if self.own_seedling else config

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        """Arguments of the `heedful` command that begins this seed's run in `folder`, or goes on with it.

        Writes its settings beside the folder.
        """
        path = write_beside(folder, to_json(StoredJob(self)))
        return ["study", "--job", path, "--out", str(folder.path), "--seed", str(seed)]

    def done(self, folder: RunFolder) -> bool:
        """Nothing is left to do in this folder."""
        return folder.report.exists()


@dataclass(frozen=True, slots=True)
class TrainingJob(OwnJob):
    """`heedful train` with this configuration: the folder is that of any other run."""

    def command(self, folder: RunFolder, seed: int) -> list[str]:
        if folder.config.exists():
            return ["train", "--resume", str(folder.path)]
        if has_begun(folder):
            raise ValueError(
                f"Expected the configuration of a begun run at {folder.config}, found none. Copy "
                f"{folder.path}.json there to go on with the run, or delete {folder.path} to begin it anew."
            )
        # What a run left behind that was killed before its configuration was written.
        shutil.rmtree(folder.path, ignore_errors=True)
        tree = to_json(self.seeded(seed))
        return ["train", tree["env"]["type"], "--config", write_beside(folder, tree), "--out", str(folder.path)]

    def done(self, folder: RunFolder) -> bool:
        return folder.verdict.exists()

    @property
    def about(self) -> str:
        return f"trains {self.config.env.name} for {self.steps} steps"


def parent_of(fork: RunFolder) -> Path:
    """The run of a fork in `RUN/forks/1/ARM/s101`."""
    above = fork.path.parents
    return above[3] if len(above) > 3 else fork.path.resolve().parents[3]


@dataclass(frozen=True, slots=True)
class ForkJob(OwnJob):
    """Go on with another run from one of its checkpoints, with settings typed beside it (`heedful fork`).

    `config`: the settings of the checkpoint, with those that all forks share. Its run is the folder four levels above.
    """

    checkpoint: int = 1
    checksum: str = ""
    """SHA-256 of the checkpoint's list of checksums: a checkpoint that was edited meanwhile is refused."""
    typed: str = ""
    """The settings of the arm, as typed beside `heedful train --resume RUN --checkpoint N`."""

    @property
    def about(self) -> str:
        return (
            f"goes on from step {self.checkpoint} to {self.steps} {f'with {self.typed}' if self.typed else 'as it was'}"
        )

    def changed(self, seed: int) -> TrainConfig:
        """The configuration of this seed's fork. `seeded` is without the arm's settings: they grow no other model."""
        return parse(TrainConfig, self.seeded(seed), shlex.split(self.typed), "heedful train", "")

    def done(self, folder: RunFolder) -> bool:
        return folder.verdict.exists()

    def run(self, folder: RunFolder, seed: int) -> int:
        from heedful.run.checkpoint import Checkpoint
        from heedful.run.edits import edits_of
        from heedful.run.train import Run, begin_fork, config_at, resume

        parent, config = Run.open(parent_of(folder)), self.changed(seed)
        checkpoint = Checkpoint(parent.folder.checkpoint(self.checkpoint), self.checkpoint)
        if checkpoint.digest() != self.checksum:
            raise ValueError(
                f"Expected the checkpoint {checkpoint.path} as it was when its forks began, found that it has changed. "
                "Restore it, or start heedful fork again: it begins new forks."
            )
        if not folder.fork.exists():  # a fork that was killed while it began is begun again
            shutil.rmtree(folder.path, ignore_errors=True)
            begin_fork(parent, self.checkpoint, folder.path, config)
        typed = list(edits_of(config_at(parent, self.checkpoint)[0], config))
        outcome = resume(folder.path, trust=trust_needed(config), changed=config, typed=typed).outcome
        assert outcome is not None
        if outcome.interrupted:
            return exit_code(outcome.signal)
        shutil.rmtree(folder.path / "checkpoints")
        return 0


JOBS: Mapping[str, Any] = {"train": TrainingJob, "fork": ForkJob}
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


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as the file of `heedful study --job FILE` holds it."""

    job: Annotated[Any, Choice({**JOBS, "grow": GrowthJob})]


def job_trust(job: OwnJob) -> list[str]:
    """The flags of trust that the command of a job needs."""
    kind = Choice(JOBS).name_of(type(job))
    return [*(("--trust", kind.partition(":")[0]) if ":" in kind else ()), *trust_flags(job)]


def write_beside(folder: RunFolder, tree: object) -> str:
    """Write a run's settings before it begins, `s0.json` beside `s0`; the path."""
    path = Path(f"{folder.path}.json")
    write_whole(path, json.dumps(tree, indent=2) + "\n")
    return str(path)


def has_begun(folder: RunFolder) -> bool:
    """Whether anything was computed in this folder."""
    return folder.metrics.exists() or (folder.path / "checkpoints").exists()


def run_read(arm: str, folder: RunFolder) -> RunFolder:
    """The run of the same seed of another arm of the study that `folder` belongs to."""
    return RunFolder(folder.path.parent.parent / arm / folder.path.name)


def refuse_name(what: str, name: str) -> None:
    """Raise ValueError for a name that cannot be that of a folder, or of one in the folder of a study."""
    if not FOLDER_NAME.fullmatch(name):
        raise ValueError(f"{what}'s name is made of at most 100 letters, digits, `_`, `-` and `.`, found {name!r:.130}")
    if name.lower() in OWN_NAMES:
        raise ValueError(f"{what} cannot have the name of a file of studies, found {name!r}")
