"""Callbacks at TRL's events: the start of training, checkpoints, optimiser steps, the end.

A resumed run continues the baselines, the numbering and the record of the interrupted run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from heedful.integrations.trl.observer import claim_record, observer_of
from heedful.integrations.trl.settings import HeedfulConfig
from heedful.integrations.watching.record import STATE, Record, load_state, save_state
from heedful.protocols import Filter


class Bridge(TrainerCallback):
    """The observer of one TRL trainer, and what it does at TRL's events."""

    def __init__(
        self, trainer: Any, config: HeedfulConfig, chooses: Filter, before_step: Callable[[], None] = lambda: None
    ) -> None:
        """Adds itself to `trainer`. `before_step` is called when the optimiser is about to step."""
        self._trainer = trainer
        self._config = config
        self._chooses = chooses
        self._before_step = before_step
        self.observer = observer_of(trainer, config, chooses)
        """Observes every generation batch, on rank 0."""
        self.resumed_from: Path | None = None
        """The checkpoint that the run resumes from, if its path is known. If not, one is looked for where TRL saves."""
        self.collapsed = False
        """An alarm named a collapse was raised in this run."""
        trainer.add_callback(self)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """A run begins or continues: new baselines, or those of the checkpoint."""
        self.observer.close()
        self.observer = observer = observer_of(self._trainer, self._config, self._chooses)
        self.collapsed = False
        if not state.is_world_process_zero:
            return
        checkpoint = self.resumed_from or _checkpoint(args, state)
        resumed = load_state(checkpoint) if state.global_step else None
        if state.global_step and resumed is None:
            warnings.warn(
                f"heedful expected {STATE} in {checkpoint}, found none: measurements continue with new "
                "baselines, numbered from 0.",
                stacklevel=2,
            )
        if resumed is not None:
            observer.load_state(resumed)
        if not self._config.record:
            return
        known = Record.of_checkpoint(resumed, checkpoint, Path(str(args.output_dir))) if resumed else None
        scorer = observer.diagnostician.scorer
        observer.begin(known or claim_record(self._trainer, self._config, self._chooses, scorer))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            save_state(_checkpoint(args, state), self.observer.state())

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._before_step()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.collapsed and self._config.on_collapse == "stop":
            control.should_training_stop = control.should_save = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.observer.close()


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}")
