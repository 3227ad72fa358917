"""`HeedfulGRPOTrainer`: TRL's GRPOTrainer with the filter before its loss and the diagnostics before its update.

Promise: the gradient is that of a batch that never held the dropped groups; what is measured changes nothing. What is
private to TRL and touched here stands in `compatibility`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer

from heedful.algorithms.loss_scale import loss_scale_factor
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.filters import KeepAll
from heedful.integrations.trl import compatibility, removal
from heedful.integrations.trl.advantages import advantages_over
from heedful.integrations.trl.batch import Completion
from heedful.integrations.trl.callback import Bridge
from heedful.integrations.trl.observer import Observer, Seen, claim_record, observer_of
from heedful.integrations.trl.record import Record
from heedful.integrations.trl.rows import COLUMNS, PREFIX, columns_of, completions_of
from heedful.integrations.trl.settings import HeedfulConfig, check_weights
from heedful.protocols import Filter
from heedful.types import Verdict


class HeedfulGRPOTrainer(GRPOTrainer):
    """TRL's `GRPOTrainer`, with reward-variance filtering and a diagnosis of template collapse.

    `heedful`: a `HeedfulConfig`; all other arguments are TRL's own. Works with plain and conversational prompts, tools,
    `environment_factory`, `rollout_func`, PEFT and several processes; groups may lie across processes.

    Filtering drops whole groups after they were rewarded: they enter no forward pass of the update and no term of the
    loss (`removal`), and when nothing is kept the weights stay as they are, untouched by weight decay and momentum.
    TRL's learning-rate schedule counts such a step all the same.

    Raises ValueError for a TRL whose private methods differ, and for names in `heedful` that the trainer does not know.
    """

    beta: float
    entropy_coef: float
    _last_world_entropy: float

    def __init__(self, *args: Any, heedful: HeedfulConfig | None = None, **kwargs: Any) -> None:
        # The arguments of a foreign constructor are passed on as they are: they change with its releases.
        compatibility.check(compatibility.PRIVATE)
        super().__init__(*args, **kwargs)
        compatibility.check_attributes(self)
        self.heedful = heedful or HeedfulConfig()
        self._filter = self._chosen_filter()
        self.observer: Observer = observer_of(self, self.heedful, self._filter)
        """Sees every generation batch, in the main process."""
        self._generated: tuple[Any, Any, Any] = ([], [], None)
        self._rewards_BF: Tensor | None = None
        self._kept_in_window = 0
        self.collapsed = False
        self.resumed_from: Path | None = None
        """The checkpoint that the run goes on from, if its path was given."""
        self.add_callback(Bridge(self))

    def _chosen_filter(self) -> Filter:
        chosen = self.heedful.filter
        if compatibility.own_filter_is_on(self.args):
            warnings.warn(
                f"TRL filters by itself ({compatibility.FILTER_OF_TRL}), so heedful's filter steps aside; the "
                "diagnostics go on.",
                stacklevel=3,
            )
            return KeepAll(on=chosen.on)
        if isinstance(chosen, KeepAll):
            return chosen
        if self.args.steps_per_generation > 1 or self.accelerator.num_processes > 1:
            for sentence in removal.cut_dependent(
                self.loss_type, self._entropy_bonus_enabled, self.top_entropy_quantile, self.aux_loss_enabled
            ):
                warnings.warn(sentence, stacklevel=3)
        if self.is_deepspeed_enabled:
            warnings.warn(
                "DeepSpeed updates the weights by itself, so a step of which the filter keeps nothing still applies "
                "weight decay and momentum.",
                stacklevel=3,
            )
        return chosen

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """TRL's; the measurements go on from the same checkpoint."""
        given = None if isinstance(resume_from_checkpoint, bool) else resume_from_checkpoint
        self.resumed_from = None if given is None else Path(given)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _generate(self, prompts: list[Any]) -> Any:
        """TRL's, kept as it came: once it has masked cut completions, nothing tells which of their ids were sampled."""
        generated = super()._generate(prompts)
        self._generated = generated[:3]
        return generated

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: list[list[int]]
    ) -> Tensor:
        """TRL's, kept as given: the filter looks at raw rewards, before any normalisation."""
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards_BF = rewards
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch, observed and without the dropped groups."""
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            self._extend_logs(self.accelerator.num_processes * len(inputs), None)
            return batch
        completions: list[Completion] = gather_object(self._local_completions(inputs))
        seen = self._observed(completions)
        self._extend_logs(len(completions), seen)
        self.collapsed = self.collapsed or any(alarm.collapse for alarm in seen.raised)
        return self._filtered(batch, seen.verdicts)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """TRL's loss; with idle rows in the batch its mean over rows is one over the kept rows."""
        if removal.KEPT not in inputs:  # an evaluation
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        kept = int(self.accelerator.reduce(inputs[removal.KEPT].sum()))
        self._kept_in_window += kept
        logged = {name: len(values) for name, values in self._metrics["train"].items()}
        controller = self.entropy_coef, self._last_world_entropy
        beta, self.beta = self.beta, self.beta * float(inputs[removal.ROW_FACTOR])
        try:
            loss: Tensor = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self.beta = beta
        if not kept:  # what TRL read off idle rows is no entropy, no KL
            for name, values in list(self._metrics["train"].items()):
                del values[logged.get(name, 0) :]
                if not values:
                    del self._metrics["train"][name]
        if not self._kept_in_window:
            self.entropy_coef, self._last_world_entropy = controller
        return loss * float(inputs[removal.LOSS_FACTOR])

    def begin(self) -> None:
        """A new run: new baselines, and a record of its own if one is to be kept."""
        self.observer.close()
        self.observer = observer_of(self, self.heedful, self._filter)
        self._kept_in_window, self.collapsed = 0, False

    def claim(self) -> Record:
        """A new folder for the record of the run."""
        return claim_record(self, self.heedful, self._filter)

    def leave_weights_if_nothing_was_kept(self) -> None:
        """Before an optimiser step: without a kept row in any process there is no update, not even a decay."""
        if not self._kept_in_window:
            for parameter in self.model.parameters():
                parameter.grad = None  # an optimiser passes over parameters without a gradient
        self._kept_in_window = 0

    def _observed(self, completions: Sequence[Completion]) -> Seen:
        """Seen by the main process; what follows from it is known to all, the groups are not."""
        found: Seen | None = None
        told: list[Any] = [None]
        if self.accelerator.is_main_process:
            found = self.observer.observe(completions, self.num_generations, self.state.global_step)
            told = [replace(found, groups=[])]
        seen: Seen = broadcast_object_list(told)[0]
        return found or seen

    def _filtered(self, batch: dict[str, Any], verdicts: Sequence[Verdict]) -> dict[str, Any]:
        check_weights(self._filter, verdicts)
        kept_P = [verdict.kept for verdict in verdicts]
        if all(kept_P):
            batch[removal.KEPT] = batch["completion_mask"].new_ones(len(batch["completion_mask"]), dtype=torch.bool)
            return self._scaled(batch, 1.0, len(kept_P), len(kept_P))
        size = len(batch["advantages"])
        kept_B = [kept for kept in kept_P for _ in range(self.num_generations)]
        processes = self.accelerator.num_processes
        by_process = [kept_B[start : start + size] for start in range(0, processes * size, size)]
        rows = removal.rows_needed([sum(kept) for kept in by_process], self.args.steps_per_generation)
        if any(gather_object([removal.keeps_all_rows(batch)])):
            rows = size
        mine = by_process[self.accelerator.process_index]
        batch["advantages"] = self._advantages(batch["advantages"], kept_B)
        smaller = removal.remove(batch, mine, rows, trim=self.pad_to_multiple_of is None)
        smaller["num_items_in_batch"] = self.accelerator.gather(removal.trained_tokens(smaller)).sum()
        held = len(smaller["advantages"]) * processes
        factor = removal.row_factor(self.loss_type, held, sum(kept_B))
        smaller["advantages"] = smaller["advantages"] * factor
        return self._scaled(smaller, factor, sum(kept_P), len(kept_P))

    def _advantages(self, advantages_B: Tensor, kept_B: Sequence[bool]) -> Tensor:
        """TRL's advantages; where they rest on statistics of the batch, those of the kept part of it."""
        over_batch = self.scale_rewards == "batch" or self.multi_objective_aggregation == "normalize_then_sum"
        if not over_batch or not any(kept_B):
            return advantages_B
        assert self._rewards_BF is not None
        found = advantages_over(
            self._rewards_BF,
            self.reward_weights.to(self._rewards_BF.device),
            self.num_generations,
            torch.tensor(kept_B, device=self._rewards_BF.device),
            normalize_first=self.multi_objective_aggregation == "normalize_then_sum",
        )
        start = self.accelerator.process_index * len(advantages_B)
        return found[start : start + len(advantages_B)].to(advantages_B)

    def _scaled(self, batch: dict[str, Any], row_factor: float, kept: int, groups: int) -> dict[str, Any]:
        share = getattr(self._filter, "share", None)
        scale = loss_scale_factor(self.heedful.loss_scale, kept, groups, share)
        batch[removal.ROW_FACTOR] = torch.tensor(row_factor)
        batch[removal.LOSS_FACTOR] = torch.tensor(scale)
        return batch

    def _local_completions(self, inputs: Sequence[dict[str, Any]]) -> list[Completion]:
        assert self._rewards_BF is not None
        start = self.accelerator.process_index * len(inputs)
        rewards = self._rewards_BF[start : start + len(inputs)].tolist()
        prompts, completions, masks = self._generated
        return completions_of(self, inputs, prompts, completions, masks, rewards, self.heedful.outcome)

    def _extend_logs(self, rows: int, seen: Seen | None) -> None:
        """Columns beside the last `rows` of TRL's completions, and numbers among its metrics. Evaluations have empty
        columns, and so has every process but the one that writes the log."""
        told: list[dict[str, Any]] = [{}] * rows
        if seen is not None and seen.groups:
            tags = ThoughtTags(self.heedful.tags.open, self.heedful.tags.close)
            members = [
                (trajectory, verdict.reason, f"{seen.step}/{group}/{trajectory.member}")
                for group, verdict in enumerate(seen.verdicts)
                for trajectory in seen.groups[group].trajectories
            ]
            logged = list(self._logs["completion"])[-rows:]
            told = [columns_of(*member, text, tags) for member, text in zip(members, logged, strict=True)]
        for name in COLUMNS:
            self._logs["extra"][PREFIX + name].extend(columns.get(name) for columns in told)
        for name, value in self.heedful.logged(seen.metrics if seen is not None else ()).items():
            self._metrics["train"][name].append(value)
