"""heedful's record of another trainer's run: `<its output folder>/heedful`, a run folder like that of `heedful train`.

It holds metrics with intervals and reasons, and rollouts with ids and verdicts. `heedful report` and `heedful audit`
read it like heedful's own runs. After a resume nothing later than the checkpoint is left in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, count
from pathlib import Path
from typing import Any

from heedful.boundary.jsontext import read_json
from heedful.measuring.diagnostician import Diagnosis
from heedful.storage import RunFolder, claim_folder, describe_environment, held, write_rollouts, write_whole
from heedful.types import Group, Verdict

_LOG = logging.getLogger("heedful")

FOLDER = "heedful"
"""The folder with the record of a run, in the trainer's output folder. A second run there is `heedful-2`."""

STATE = "heedful.json"
"""File in a checkpoint of the trainer with the state of the measurements."""


_HELD: dict[Path, ExitStack] = {}
"""The locks of this process. A trainer that was interrupted, as in a notebook, never gives its folder back itself."""


class Record:
    """The record of one run, written by one process, which holds the folder's lock until `close`.

    A second record of the same process takes the folder from the first, which can only be one of a run that broke off.
    Raises ValueError if another process writes into the folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._lock = taken(folder.path)

    def close(self) -> None:
        """Give the folder back."""
        self._lock.close()

    @classmethod
    def claim(cls, output_dir: Path, configuration: Mapping[str, Any], device: str, threads: int) -> Record:
        """A new folder `heedful`, or `heedful-<n>` if earlier runs left theirs."""
        folder = RunFolder(numbered(output_dir / FOLDER))
        record = cls(folder)
        write_whole(folder.config, json.dumps(configuration, indent=1) + "\n")
        write_whole(folder.environment, json.dumps(describe_environment(device, threads), indent=1) + "\n")
        return record

    @classmethod
    def of_checkpoint(cls, state: Mapping[str, Any], checkpoint: Path, output_dir: Path) -> Record | None:
        """The record that a checkpoint's state names, if it is one of this output folder."""
        folder = checkpoint.parent / (state["folder"] or "")
        if not state["folder"] or not folder.is_dir() or checkpoint.parent.resolve() != output_dir.resolve():
            return None
        return cls.resume(folder, state["generation"])

    @classmethod
    def resume(cls, path: Path, generation: int) -> Record:
        """Continue a folder, and keep its first `generation` batches."""
        folder = RunFolder(path)
        record = cls(folder)
        folder.truncate_after(generation - 1)
        return record

    def write(self, step: int, groups: Sequence[Group], verdicts: Sequence[Verdict], diagnosis: Diagnosis) -> None:
        """Write rollouts and score matrix of one generation batch. The metrics go to `folder.metrics`."""
        write_rollouts(self.folder.rollouts(step), step, "train", groups, verdicts)
        diagnosis.store_scores(self.folder.scores(step))


def numbered(folder: Path) -> Path:
    """Claim a new folder: this one, or `<name>-<n>` if earlier runs left theirs."""
    names = chain([folder.name], (f"{folder.name}-{number}" for number in count(2)))
    return claim_folder(folder.parent / name for name in names)


def taken(folder: Path) -> ExitStack:
    """The lock of a folder, to be closed. A run of this process that broke off gives its own back.

    Raises ValueError if another process writes into the folder.
    """
    place, lock = folder.resolve(), ExitStack()
    if place in _HELD:
        _HELD[place].close()
    lock.enter_context(held(folder, _LOG.warning))
    _HELD[place] = lock
    return lock


def save_state(checkpoint: Path, state: Mapping[str, Any], name: str = STATE) -> None:
    """Put the state of the measurements into a checkpoint of the trainer."""
    write_whole(checkpoint / name, json.dumps(state) + "\n")


def load_state(checkpoint: Path, name: str = STATE) -> Mapping[str, Any] | None:
    """The state in a checkpoint, or `None` if none was saved. Raises ValueError for a file that is no JSON."""
    path = checkpoint / name
    return dict(read_json(path)) if path.exists() else None
