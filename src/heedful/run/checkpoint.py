"""Checkpoints: everything that a killed run needs to continue with the same bytes.

A checkpoint is complete or absent: it is written under another name, then renamed. It loads as a plain Hugging Face
model directory. Its checksums say whether it is as it was written. What passes them is not checked again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.boundary.jsontext import read_json
from heedful.models.load import read_model
from heedful.models.writing import Saveable, write_pretrained
from heedful.run.config import TrainConfig, from_written
from heedful.storage import CHECKSUMS, create, demand_unchanged, naming_a_full_disk, write_checksums, write_whole

SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk. `version` is the number of training steps behind it."""

    path: Path
    version: int

    @property
    def remedy(self) -> str:
        return f"Delete the folder {self.path} to resume from the checkpoint before it."

    def check(self, remedy: str = "") -> None:
        """Compare all files with the checksums that were written with them. Raises a sentence for files that changed.

        `remedy`: what to do about it. By default: resume from the checkpoint before.
        """
        demand_unchanged(self.path, remedy or self.remedy)

    def digest(self) -> str:
        """SHA-256 of its list of checksums, which names every file. Empty in checkpoints of older versions."""
        path = self.path / CHECKSUMS
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""

    def state(self) -> dict[str, Any]:
        """The loop's own state: a JSON tree."""
        return dict(read_json(self.path / "state.json"))

    def settings(self) -> Mapping[str, Any] | None:
        """The configuration under which it was written, as JSON; `None` in checkpoints of older versions."""
        path = self.path / SETTINGS
        return dict(read_json(path)) if path.exists() else None

    def began(self) -> TrainConfig | None:
        """The configuration that decided the model before the first step: settings typed beside a resume do not.

        In checkpoints of older versions that of the checkpoint, or `None`.
        """
        settings = self.settings()
        return None if settings is None else from_written({**settings, **self.state().get("began", {})})

    def learner_state(self) -> dict[str, Any]:
        """The optimizer's state."""
        return dict(torch.load(self.path / "learner.pt", map_location="cpu", weights_only=True))

    def model(self, dtype: torch.dtype) -> PreTrainedModel:
        """The weights."""
        return read_model(self.path, dtype, self.remedy)


def checkpoints(folder: Path) -> list[Checkpoint]:
    """The checkpoints in `folder`, oldest first. An empty folder is none."""
    found = [
        Checkpoint(path, int(path.name.removeprefix("step_")))
        for path in folder.glob("step_*")
        if re.fullmatch(r"step_[0-9]+", path.name) and path.is_dir() and any(path.iterdir())
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.version)


def save(
    folder: Path,
    version: int,
    model: Saveable | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    learner_state: Mapping[str, Any],
    state: Mapping[str, Any],
) -> Checkpoint:
    """Write `step_<version>` (six digits). Raises `DiskFull` when there is no room. Earlier checkpoints stay.

    `state` is the loop's own. The run's configuration in it, `config`, gets a file of its own.
    """
    target = folder / f"step_{version:06d}"
    unfinished = folder / f".{target.name}.part"
    for leftover in folder.glob(".step_*"):  # of a run that was killed while it saved or deleted
        shutil.rmtree(leftover, ignore_errors=True)
    with naming_a_full_disk(target, kept="the earlier checkpoints and all metrics so far"):
        try:
            unfinished.mkdir(parents=True)
            write_pretrained(unfinished, model, tokenizer)
            # Given a path, torch's own writer raises an error that does not mention the full disk. After a write that
            # failed it closes its archive, and fails again, without the first error's words.
            with create(unfinished / "learner.pt") as stream:
                try:
                    torch.save(dict(learner_state), stream)
                except RuntimeError as error:
                    raise error.__context__ or error from None
            own = {name: value for name, value in state.items() if name != "config"}
            own |= {"checksums": True, "version": version}
            write_whole(unfinished / "state.json", json.dumps(own, indent=1, sort_keys=True))
            if "config" in state:
                write_whole(unfinished / SETTINGS, json.dumps(state["config"], indent=1, sort_keys=True))
            write_checksums(unfinished)
            _remove(target)
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return Checkpoint(target, version)


def prune(folder: Path, keep_last: int, best: int | None, around: int = 0, pinned: Collection[int] = ()) -> None:
    """Delete all but the newest `keep_last` checkpoints, the best evaluated one, and those of `pinned`.

    `around`: steps between checkpoints. Of those that are 1, 2 to 3, 4 to 7, 8 to 15 ... times so far back, one of each
    stays, too: what is deleted now is never needed later. 0 = none of them.
    """
    found = checkpoints(folder)
    for checkpoint in found[:-keep_last]:
        age = max(1, (found[-1].version - checkpoint.version) // around) if around else 0
        stays = around and checkpoint.version % (around << (age.bit_length() - 1)) == 0
        if checkpoint.version not in (best, *pinned) and not stays:
            _remove(checkpoint.path)


def _remove(path: Path) -> None:
    """Delete a checkpoint so that a kill in between leaves nothing that looks like one."""
    if path.exists():
        shutil.rmtree(path.rename(path.with_name(f".{path.name}.old")))
