"""Checkpoints: everything that a killed run needs to continue with the same bytes.

A checkpoint is complete or absent: it is written under another name, then renamed. It loads as a plain Hugging Face
model directory.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.boundary.folders import make_folder
from heedful.boundary.jsontext import read_json
from heedful.boundary.open_files import open_file
from heedful.models.folders import read_model, write_pretrained
from heedful.models.writing import Saveable
from heedful.storage import CHECKSUMS, LISTED, check_folder, create, naming_a_full_disk, write_checksums, write_whole

SETTINGS = "settings.json"
_VERSION = "version"
"""In `state.json`: the number of training steps behind it. Older checkpoints have it in the folder's name alone."""
_UNREADABLE = (
    *(OSError, RuntimeError, EOFError, ValueError, TypeError, pickle.UnpicklingError),
    *(LookupError, AttributeError, ArithmeticError, AssertionError),
)
"""The errors of torch's reader for files that are no checkpoint, such as text."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk. `version` is the number of training steps behind it."""

    path: Path
    version: int

    def check(self, remedy: str = "") -> None:
        """Compare all files with the checksums that were written with them, and the step with that of the folder.

        Raises a sentence for each file that changed, or for another step.
        `remedy`: what to do about it. By default: resume from the checkpoint before.
        """
        state = self.path / "state.json"
        is_gone = not (self.path / CHECKSUMS).exists()
        listed = is_gone and state.exists() and bool(self.state(remedy).get(LISTED))
        check_folder(self.path, remedy or self._remedy, listed=listed)
        written = self.state(remedy).get(_VERSION, self.version) if state.exists() else self.version
        if written != self.version:
            raise ValueError(
                f"Expected the checkpoint of step {self.version} in {self.path}, found that of step {written!r:.80}. "
                f"Was the folder renamed? {remedy or self._remedy}"
            )

    def state(self, remedy: str = "") -> dict[str, Any]:
        """The loop's own state: a JSON tree. Raises a sentence if the file cannot be read. `remedy`: as in `check`."""
        path = self.path / "state.json"
        try:
            return dict(read_json(path))
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(self._unreadable(path, error, remedy)) from error

    def settings(self) -> object:
        """The configuration under which it was written, as JSON; `None` in checkpoints of older versions."""
        path = self.path / SETTINGS
        try:
            return read_json(path) if path.exists() else None
        except (OSError, ValueError) as error:
            raise ValueError(self._unreadable(path, error)) from error

    def learner_state(self) -> dict[str, Any]:
        """The optimizer's state. Raises a sentence if the file cannot be read."""
        path = self.path / "learner.pt"
        try:
            with open_file(path) as stream:
                return dict(torch.load(stream, map_location="cpu", weights_only=True))
        except _UNREADABLE as error:
            raise ValueError(self._unreadable(path, error)) from error

    def model(self, dtype: torch.dtype) -> PreTrainedModel:
        """The weights. Raises a sentence if they cannot be read."""
        return read_model(self.path, dtype, self._remedy)

    @property
    def _remedy(self) -> str:
        return f"Delete the folder {self.path} to resume from the checkpoint before it."

    def unfitting(self, error: Exception) -> str:
        """The sentence about a state that is read and does not fit the run."""
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {str(error).strip():.200}"
        return (
            f"Expected the state of a run in {self.path}, found one that does not fit it ({said.rstrip('.')}). "
            f"Leave out the settings that you typed beside --resume. If you typed none: {self._remedy}"
        )

    def _unreadable(self, path: Path, error: Exception, remedy: str = "") -> str:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else "it ends too early"
        return f"The checkpoint file {path} cannot be read ({type(error).__name__}: {reason}). {remedy or self._remedy}"


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
            make_folder(unfinished, exist_ok=False)
            write_pretrained(unfinished, model, tokenizer)
            _save_tensors(unfinished / "learner.pt", learner_state)
            own = {name: value for name, value in state.items() if name != "config"} | {
                LISTED: True,
                _VERSION: version,
            }
            write_whole(unfinished / "state.json", json.dumps(own, indent=1, sort_keys=True))
            if "config" in state:
                write_whole(unfinished / SETTINGS, json.dumps(state["config"], indent=1, sort_keys=True))
            write_checksums(unfinished)
            _remove(target)
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return Checkpoint(target, version)


def _save_tensors(path: Path, tree: Mapping[str, Any]) -> None:
    """torch.save, with the system's own error where there is no room."""
    # Given a path, torch's own writer raises an error that does not mention the full disk.
    with create(path) as stream:
        try:
            torch.save(dict(tree), stream)
        except RuntimeError as error:
            # torch closes its archive after a write that failed, and fails again, without the first error's words.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def prune(folder: Path, keep_last: int, best: int | None) -> None:
    """Delete all but the newest `keep_last` checkpoints and the best evaluated one."""
    for checkpoint in checkpoints(folder)[:-keep_last]:
        if checkpoint.version != best:
            _remove(checkpoint.path)


def _remove(path: Path) -> None:
    """Delete a checkpoint so that a kill in between leaves nothing that looks like one."""
    if path.exists():
        shutil.rmtree(path.rename(path.with_name(f".{path.name}.old")))
