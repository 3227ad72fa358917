"""Callbacks at TRL's events: the start of training, checkpoints, optimiser steps, the end.

A resumed run continues the baselines, the numbering and the record of the interrupted run.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from heedful.integrations.trl.settings import HeedfulConfig
from heedful.integrations.watching.observer import Observer
from heedful.integrations.watching.record import STATE, Record, load_state, reading_state, save_state


class Watching(Protocol):
    """Receiver of TRL's events: heedful's trainer, or a probe in another trainer."""

    heedful: HeedfulConfig
    observer: Observer
    resumed_from: Path | None
    collapsed: bool
    """An alarm named a collapse was raised in this run."""

    def begin(self) -> None:
        """A run begins or continues."""
        ...

    def claim(self) -> Record:
        """A new folder for the record of the run."""
        ...

    def leave_weights_if_nothing_was_kept(self) -> None:
        """The optimiser is about to step."""
        ...


class Bridge(TrainerCallback):
    """Forwards TRL's events to a `Watching`."""

    def __init__(self, trainer: Watching) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer = self._trainer
        trainer.begin()
        if not state.is_world_process_zero:
            return
        checkpoint = trainer.resumed_from or _checkpoint(args, state)
        resumed = load_state(checkpoint) if state.global_step else None
        if state.global_step and resumed is None:
            warnings.warn(
                f"heedful expected {STATE} in {checkpoint}, found none: measurements continue with new "
                "baselines, numbered from 0.",
                stacklevel=2,
            )
        observer = trainer.observer
        if resumed is not None:
            with reading_state(checkpoint):
                observer.load_state(resumed)
        if not trainer.heedful.record:
            return
        folder = checkpoint.parent / resumed["folder"] if resumed and resumed["folder"] else None
        if folder is not None and folder.is_dir() and folder.parent.samefile(str(args.output_dir)):
            observer.begin(Record.resume(folder, observer.generation))
        else:
            observer.begin(trainer.claim())

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            save_state(_checkpoint(args, state), self._trainer.observer.state())

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._trainer.leave_weights_if_nothing_was_kept()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._trainer.collapsed and self._trainer.heedful.on_collapse == "stop":
            control.should_training_stop = control.should_save = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._trainer.observer.close()


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}")
