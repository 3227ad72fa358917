"""What has to happen at a TRL trainer's own moments: its beginning, its checkpoints, its optimiser steps, its end.

Promise: a resumed run goes on with the baselines, the numbering and the record of the run that was interrupted.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from heedful.integrations.trl.observer import Observer, claim_record
from heedful.integrations.trl.record import STATE, Record, load_state, save_state
from heedful.integrations.trl.settings import HeedfulConfig


class Trainer(Protocol):
    """What a trainer answers to TRL's events."""

    heedful: HeedfulConfig
    observer: Observer

    def begin(self) -> None:
        """A run begins, or goes on."""
        ...

    def leave_weights_if_nothing_was_kept(self) -> None:
        """The optimiser is about to step."""
        ...


class Bridge(TrainerCallback):
    """Carries TRL's events to such a trainer."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer = self._trainer
        trainer.begin()
        if not state.is_world_process_zero:
            return
        resumed = load_state(_checkpoint(args, state)) if state.global_step else None
        if state.global_step and resumed is None:
            warnings.warn(
                f"heedful expected {STATE} in {_checkpoint(args, state)}, found none: measurements go on with new "
                "baselines, numbered from 0.",
                stacklevel=2,
            )
        observer = trainer.observer
        if resumed is not None:
            observer.load_state(resumed)
        if not trainer.heedful.record:
            return
        folder = Path(str(args.output_dir), resumed["folder"]) if resumed and resumed["folder"] else None
        if folder is not None and folder.is_dir():
            observer.begin(Record.resume(folder, observer.generation))
        else:
            observer.begin(claim_record(trainer, trainer.heedful, observer.chooses))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            save_state(_checkpoint(args, state), self._trainer.observer.state())

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._trainer.leave_weights_if_nothing_was_kept()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._trainer.observer.close()


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}")
