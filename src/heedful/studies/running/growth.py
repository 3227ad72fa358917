"""Grows the models that several runs of a study begin with: once each, as processes beside the other runs.

Promise: a run waits for its own model alone, and a model that cannot be grown stops no run that begins with another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from heedful.boundary import to_json, trust_flags
from heedful.run.config import TrainConfig
from heedful.run.terminal import GrowthBar
from heedful.storage import RunFolder
from heedful.studies.jobs import GrowthJob, StoredJob, write_beside
from heedful.studies.running.processes import Child

_DECIDES_A_START = ("env", "model", "seedling", "warm_start", "tags", "context", "template_options", "threads")


def start_of(config: TrainConfig) -> str:
    """What decides the model that a run begins with, where it is grown; empty where it is loaded."""
    if config.model != "seedling" and not config.warm_start.steps:
        return ""
    tree = to_json(config)
    return str([tree[name] for name in _DECIDES_A_START])


@dataclass(frozen=True, slots=True)
class Growths:
    """The processes that grow models, and what they said last."""

    console: Console
    of_run: Mapping[str, Child] = field(default_factory=dict)
    """The process that grows what a run begins with, by the label of the run. Runs of one model share it."""
    told: dict[str, list[str]] = field(default_factory=dict)

    @property
    def children(self) -> list[Child]:
        return list({child.label: child for child in self.of_run.values()}.values())

    def done(self, run: str) -> bool:
        """Whether the model that a run begins with is there, or is left to the run."""
        return run not in self.of_run or self.of_run[run].state == "done"

    def tell(self) -> None:
        """Print the last line of each process where it is a new one."""
        for child in self.children:
            newest = child.last_words(1)
            if newest and newest != self.told.get(child.label):
                self.told[child.label] = newest
                self.console.print(f"{child.label}: {newest[0]}", markup=False, soft_wrap=True)


def growths(configs: Mapping[str, TrainConfig], place: Path, lock: int, console: Console) -> Growths:
    """What grows the models that several of these runs begin with, as far as they are not stored.

    A model of one run alone is grown by that run. One that all runs wait for is grown here, into the cache.

    Args:
        configs: the runs that are to be run, by their label.
        place: the folder for the jobs and the logs of the processes. It is made where it is needed.

    Raises:
        ValueError: the model that is grown here cannot be grown.
    """
    runs_of: dict[str, list[str]] = {}
    for label, config in configs.items():
        runs_of.setdefault(start_of(config), []).append(label)
    runs_of.pop("", None)
    missing = [labels for labels in runs_of.values() if len(labels) > 1 and not _stored(configs[labels[0]])]
    if [len(labels) for labels in missing] == [len(configs)]:
        from heedful.models.load import pick_device
        from heedful.run.parts import load_policy

        config = configs[missing[0][0]]
        with GrowthBar(console) as bar:
            load_policy(config, pick_device(config.device), bar)
        return Growths(console)
    if missing:
        models = "1 model" if len(missing) == 1 else f"{len(missing)} models"
        console.print(f"growing {models}, while runs that begin with another one go on", soft_wrap=True)
    of_run: dict[str, Child] = {}
    for number, labels in enumerate(missing, 1):
        config = configs[labels[0]]
        folder = RunFolder(place / str(number))
        log = place / f"{number}.log"
        log.unlink(missing_ok=True)  # of an earlier start
        job = write_beside(folder, to_json(StoredJob(GrowthJob(config))))
        command = ["study", "--job", job, "--out", str(place), "--seed", str(config.seed), *trust_flags(config)]
        child = Child(f"model {number}, {config.env.name}", log, lambda command=command: command, (lock,))  # type: ignore[misc]
        of_run |= dict.fromkeys(labels, child)
    return Growths(console, of_run)


def _stored(config: TrainConfig) -> bool:
    import torch

    from heedful.models.load import pick_device
    from heedful.run.parts import is_stored

    torch.set_num_threads(config.threads)  # the name of a stored model holds it
    return is_stored(config, pick_device(config.device))
