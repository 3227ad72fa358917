"""Learning from demonstrations that goes on after an interruption: the growth of a seedling, and a warm start."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.stopping import StoppedBySignal, StopRequest, finish_the_step_first
from heedful.storage import held, naming_a_full_disk
from heedful.types import TrainingSample

if TYPE_CHECKING:
    from heedful.seedlings.fit import Fit, Progress

SAVED_EVERY = 180.0
"""Seconds between two copies of an unfinished model."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The file that holds what an interrupted process has learned."""

    file: Path
    what: str
    """What is learned: 'seedling' or 'warm start'."""

    def load_into(self, fit: Fit) -> None:
        """Go on after the step of this copy, if there is one. Raises ValueError, a sentence, for a damaged copy."""
        if not self.file.exists():
            return
        try:
            fit.load(self.file)
        except ValueError as error:
            raise ValueError(
                f"Expected the copy of an unfinished {self.what} in {self.file}, found {error}. Delete the folder "
                f"{self.file.parent} to begin the {self.what} again."
            ) from error


@contextmanager
def unfinished(path: Path, what: str) -> Iterator[Copy]:
    """Hold the folder beside `path`, the folder of the finished model, in which the copy is. It is removed at the end.

    Raises:
        InUse: another process is learning the same.
        DiskFull: there is no room. A copy that was saved before stays.
    """
    folder = path.with_name(f"{path.name}.unfinished")
    with naming_a_full_disk(path, kept=f"what {folder} holds of this {what}"), held(folder):
        yield Copy(folder / "fit.safetensors", what)
    shutil.rmtree(folder, ignore_errors=True)


def learn(fit: Fit, rows: Iterator[list[TrainingSample]], steps: int, progress: Progress, copy: Copy | None) -> None:
    """Take the steps that are left of `steps`. `rows`: those of every step, from the first one.

    A first Ctrl-C, or a scheduler's signal, saves a copy and ends the program. `copy=None`: nothing is saved.

    Raises:
        ValueError: the copy is damaged.
        StoppedBySignal: a signal came, and what is learned is saved.
    """
    if copy is not None:
        copy.load_into(fit)
    saved = time.monotonic()
    with finish_the_step_first() if copy is not None else nullcontext(StopRequest()) as request:
        for samples in islice(rows, fit.step, steps):
            loss = fit.learn(samples)
            progress(fit.step, steps, loss)
            if copy is not None and (request.asked or time.monotonic() > saved + SAVED_EVERY):
                fit.save(copy.file)
                saved = time.monotonic()
                if request.asked:
                    raise StoppedBySignal(
                        request.signal,
                        f"the {copy.what} is saved after step {fit.step} of {steps}, and goes on from there",
                    )
