"""Grows the models that several runs of a study begin with: before the first run, several at the same time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from heedful.configuration import to_json, trust_flags
from heedful.run.config import TrainConfig
from heedful.run.terminal import GrowthBar
from heedful.storage import write_whole
from heedful.studies.running.processes import Child, run_children

_DECIDES_A_START = ("env", "model", "seedling", "warm_start", "tags", "context", "template_options", "threads")


def starts(configs: Iterable[TrainConfig]) -> list[list[TrainConfig]]:
    """The configurations of runs whose model is grown, those of one model together."""
    grown: dict[str, list[TrainConfig]] = {}
    for config in configs:
        if config.model == "seedling" or config.warm_start.steps:
            tree = to_json(config)
            grown.setdefault(str([tree[name] for name in _DECIDES_A_START]), []).append(config)
    return list(grown.values())


def grow_shared(configs: Iterable[TrainConfig], workers: int, lock: int, console: Console) -> int:
    """Put into the cache what several of these runs begin with. A model of one run alone is grown by that run.

    `workers`: models that are grown at the same time. Returns the signal that interrupted it, or 0. Raises ValueError
    for a model that cannot be grown.
    """
    shared = [same[0] for same in starts(configs) if len(same) > 1]
    if not shared:
        return 0
    import torch

    from heedful.models.load import pick_device
    from heedful.run.parts import is_stored, load_policy

    missing = []
    for config in shared:
        torch.set_num_threads(config.threads)  # the name of a stored model holds it
        if not is_stored(config, pick_device(config.device)):
            missing.append(config)
    if min(workers, len(missing)) > 1:
        interrupted = _grow_together(missing, workers, lock, console)
        if interrupted:
            return interrupted
    for config in shared:  # what is grown by now is read, and what failed says here why
        torch.set_num_threads(config.threads)
        with GrowthBar(console) as bar:
            load_policy(config, pick_device(config.device), bar)
    return 0


def _grow_together(configs: Sequence[TrainConfig], workers: int, lock: int, console: Console) -> int:
    """Each model in a process of its own. The signal that interrupted them, or 0."""
    console.print(f"growing {len(configs)} models, {min(workers, len(configs))} at a time", soft_wrap=True)
    with TemporaryDirectory(prefix="heedful-growth-") as place:
        children = [_child(config, Path(place), number, lock) for number, config in enumerate(configs, 1)]
        told: dict[str, list[str]] = {}

        def show(states: Mapping[str, str]) -> None:
            for child in children:
                newest = child.last_words(1)
                if newest and newest != told.get(child.label):
                    told[child.label] = newest
                    console.print(f"{child.label}: {newest[0]}", markup=False, soft_wrap=True)

        return run_children(children, workers, show)


def _child(config: TrainConfig, place: Path, number: int, lock: int) -> Child:
    job = place / f"{number}.json"
    write_whole(job, json.dumps({"type": "grow", "config": to_json(config)}) + "\n")
    command = ["study", "--job", str(job), "--out", str(place), "--seed", str(config.seed), *trust_flags(config)]
    return Child(f"model {number}, {config.env.name}", place / f"{number}.log", lambda: command, (lock,))
