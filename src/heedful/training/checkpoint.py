"""Checkpoints: everything a killed run needs to go on with the same bytes.

Promise: a checkpoint is whole or absent (written under another name, then renamed), and it loads as a plain
Hugging Face model directory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.storage import naming_a_full_disk, write_whole


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk. `version` counts the training steps behind it."""

    path: Path
    version: int

    def state(self) -> dict[str, Any]:
        """The loop's own state: a JSON tree."""
        return _read_json(self.path / "state.json")

    def learner_state(self) -> dict[str, Any]:
        """The optimizer's state. Raises a sentence if the file cannot be read."""
        path = self.path / "learner.pt"
        try:
            return dict(torch.load(path, map_location="cpu", weights_only=True))
        except (OSError, RuntimeError, EOFError, ValueError) as error:
            raise ValueError(_unreadable(path, error)) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise ValueError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: Exception) -> str:
    return (
        f"The checkpoint file {path} cannot be read ({type(error).__name__}: {error}). Delete the folder "
        f"{path.parent} to resume from the checkpoint before it."
    )


def checkpoints(folder: Path) -> list[Checkpoint]:
    """The whole checkpoints in `folder`, oldest first."""
    found = [
        Checkpoint(path, int(path.name.removeprefix("step_")))
        for path in folder.glob("step_*")
        if path.name.removeprefix("step_").isdigit()
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.version)


def save(
    folder: Path,
    version: int,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    learner_state: Mapping[str, Any],
    state: Mapping[str, Any],
) -> Checkpoint:
    """Write `step_<version>` (six digits). Raises `DiskFull` when there is no room; earlier checkpoints stay."""
    target = folder / f"step_{version:06d}"
    unfinished = folder / f".{target.name}.part"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    with naming_a_full_disk(target, kept="the earlier checkpoints and all metrics so far"):
        try:
            model.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
            torch.save(dict(learner_state), unfinished / "learner.pt")
            write_whole(unfinished / "state.json", json.dumps(state, indent=1, sort_keys=True))
            shutil.rmtree(target, ignore_errors=True)
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return Checkpoint(target, version)


def prune(folder: Path, keep_last: int, best: int | None) -> None:
    """Delete all but the newest `keep_last` checkpoints and the best evaluated one."""
    for checkpoint in checkpoints(folder)[:-keep_last]:
        if checkpoint.version != best:
            shutil.rmtree(checkpoint.path)
