"""heedful at TRL's events: a run begins or resumes, is saved, ends, or is ended by a collapse.

A resumed run continues the baselines, the numbering and the record of the interrupted run.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from heedful.integrations.trl.choosing import PromptChoice
from heedful.integrations.trl.observer import Processes, begin, observer_of
from heedful.integrations.trl.settings import HeedfulConfig
from heedful.integrations.watching.completions import Completion, in_groups
from heedful.integrations.watching.observer import Seen
from heedful.integrations.watching.record import STATE, load_state, save_state
from heedful.protocols import Filter
from heedful.rollout.choosers import InOrder, Yoked
from heedful.scorers.dealt import DealtScorer
from heedful.scorers.hf import HFScorer
from heedful.types import Metric


class Bridge(TrainerCallback):
    """What every part of heedful inside TRL does at TRL's events. Rank 0 measures, and all ranks end a run together."""

    state_file: ClassVar[str] = STATE
    """The file in a checkpoint with the state of the measurements."""

    resumed_from: Path | None = None
    """The checkpoint that the run resumes from, if its path is known. If not, one is looked for where TRL saves."""
    collapsed = False
    """An alarm named a collapse was raised in this run."""

    def __init__(self, *, stops: bool) -> None:
        """`stops`: a collapse ends the training."""
        self._stops = stops

    @abstractmethod
    def begin(
        self, args: TrainingArguments, state: TrainerState, checkpoint: Path, resumed: Mapping[str, Any] | None
    ) -> None:
        """Measure a new run, or go on with one. `resumed`: what `state` gave when `checkpoint` was saved."""

    @abstractmethod
    def state(self) -> Mapping[str, Any]:
        """The state that a resumed run needs, as a JSON tree."""

    @abstractmethod
    def close(self) -> None:
        """Nothing more is measured in this run."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.close()
        self.collapsed = False
        if not state.is_world_process_zero:
            return
        checkpoint = self.resumed_from or _saved_at(args, state)
        resumed = load_state(checkpoint, self.state_file) if state.global_step else None
        if state.global_step and resumed is None:
            warnings.warn(
                f"heedful expected {self.state_file} in {checkpoint}, found none: measurements continue with new "
                "baselines, and a new record.",
                stacklevel=2,
            )
        self.begin(args, state, checkpoint, resumed)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            save_state(_saved_at(args, state), self.state(), self.state_file)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._stops and args.world_size > 1:  # rank 0 alone may know
            self.collapsed = broadcast_object_list([self.collapsed])[0]
        if self.collapsed and self._stops:
            control.should_training_stop = control.should_save = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.close()


class Batches(Bridge):
    """Observes the generation batches of one trainer, which hands them over."""

    def __init__(
        self, trainer: Any, config: HeedfulConfig, chooses: Filter, before_step: Callable[[], None] = lambda: None
    ) -> None:
        """Adds itself to `trainer`. `before_step` is called when the optimiser is about to step."""
        super().__init__(stops=config.on_collapse == "stop")
        self._trainer = trainer
        self._config = config
        self._chooses = chooses
        self._before_step = before_step
        self.observer = observer_of(trainer, config, chooses)
        """Observes every generation batch, on rank 0."""
        self.refilled = 0
        """Prompts that refills have drawn so far. Rank 0 knows it after a resume."""
        self.choice = self._new_choice()
        """Chooses prompts, on rank 0. `None` = the order of TRL."""
        trainer.add_callback(self)

    def _new_choice(self) -> PromptChoice | None:
        chooser, trainer = self._config.choose, self._trainer
        if isinstance(chooser, InOrder):
            return None
        return PromptChoice(chooser, len(trainer.train_dataset), self._config.seed_in(trainer.args))

    def begin(
        self, args: TrainingArguments, state: TrainerState, checkpoint: Path, resumed: Mapping[str, Any] | None
    ) -> None:
        self.observer = observer_of(self._trainer, self._config, self._chooses)
        self.refilled = 0 if resumed is None else resumed.get("refilled", 0)
        self.choice = self._new_choice()
        if self.choice is not None and resumed is not None:
            self.choice.memory.load_state(resumed.get("memory", {}))
        if isinstance(self._config.choose, Yoked):
            left = (state.max_steps - state.global_step) * args.gradient_accumulation_steps
            batches = -(-left // (self._trainer.args.steps_per_generation * self._trainer.num_iterations))
            # TRL saves no half-used batch, so a resumed run may sample more of them than one that was never killed.
            seen = 0 if resumed is None else resumed["generation"]
            self._config.choose.check(seen + batches, len(self._trainer.train_dataset))
        begin(self.observer, self._trainer, self._config, self._chooses, checkpoint, resumed)

    def state(self) -> Mapping[str, Any]:
        memory = {} if self.choice is None else {"memory": self.choice.memory.state()}
        return {**self.observer.state(), "refilled": self.refilled, **memory}

    def close(self) -> None:
        self.observer.close()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._before_step()

    def draw(self, groups: int, even: int = 1) -> list[int]:
        """The places of so many prompts in the training data, as `PromptChoice.draw`. Rank 0 decides for all ranks."""
        ranks, choice = Processes(self._trainer.accelerator), self.choice
        drawn: list[int] | None = None
        try:
            if choice is not None and ranks.rank == 0:
                drawn = choice.draw(groups, self.observer.generation, even)
        finally:  # the others wait, also for a rank 0 that failed
            places: list[int] | None = ranks.hear(drawn)
        if places is None:
            raise RuntimeError("heedful expected prompts of process 0, found that it has failed: see its own output.")
        return places

    def observe(self, completions: Sequence[Completion], also: Sequence[Metric] = (), most: int | None = None) -> Seen:
        """The observation of a batch, made on rank 0. All ranks learn its verdicts and metrics, and no groups.

        `completions`: those of all processes. Every rank scores its share of the pairs that rank 0 asks for. `also`,
        `most`: as in `Observer.observe`.
        """
        scorer, ranks = self.observer.diagnostician.scorer, Processes(self._trainer.accelerator)
        choice = self.choice
        found: Seen | None = None
        try:
            if ranks.rank == 0:
                members_PG = in_groups(completions, self._trainer.num_generations)
                with scorer.asking() if isinstance(scorer, DealtScorer | HFScorer) else nullcontext():
                    probes = () if choice is None else choice.probes
                    earlier = () if choice is None else choice.earlier(self._chooses.on)
                    version = self._trainer.state.global_step
                    found = self.observer.observe(members_PG, version, also, most, probes, earlier)
                if choice is not None:
                    choice.observe(found)
            elif isinstance(scorer, DealtScorer):
                scorer.answer()
        finally:  # the others wait, also for a rank 0 that failed
            seen: Seen | None = ranks.hear(found and replace(found, groups=[]))
        if seen is None:
            raise RuntimeError("heedful expected numbers of process 0, found that it has failed: see its own output.")
        self.collapsed |= any(alarm.collapse for alarm in seen.raised)
        return found or seen


def _saved_at(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}")
