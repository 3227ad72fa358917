"""`HeedfulGRPOTrainer`: TRL's GRPOTrainer with the filter before its loss and the diagnostics before its update.

The gradient equals that of a batch without the dropped groups. Measurements change nothing. `compatibility` lists the
private parts of TRL that are used here.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer

from heedful.algorithms.table import loss_scale_factor
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.filters import KeepAll
from heedful.integrations.trl import compatibility, removal
from heedful.integrations.trl.callback import Batches
from heedful.integrations.trl.pictures import kinds_of, pictures_in, pixels_of, sees
from heedful.integrations.trl.rollouts import FIELD, EnvironmentRollouts
from heedful.integrations.trl.rows import COLUMNS, PREFIX, columns_of, completions_of
from heedful.integrations.trl.sampler import LOGGED_BY_TRL, difference_metrics
from heedful.integrations.trl.settings import HeedfulConfig
from heedful.integrations.watching.completions import Completion, in_groups
from heedful.integrations.watching.observer import Observer, Seen
from heedful.protocols import Filter
from heedful.rollout.choosers import InOrder
from heedful.rollout.rounds import Collection, RefillEnding, refill_size
from heedful.seeds import derive
from heedful.types import Verdict


class _Draw(NamedTuple):
    """A generation batch that was rewarded."""

    batch: dict[str, Any]
    """TRL's columns, for the rows of this process."""
    completions: list[Completion]
    """Of all processes, in order."""
    rewards_BF: Tensor
    """Raw rewards of all processes, one column for each function."""


class HeedfulGRPOTrainer(GRPOTrainer):
    """TRL's `GRPOTrainer`, with reward-variance filtering and a diagnosis of template collapse.

    `heedful`: a `HeedfulConfig`. All other arguments are TRL's own. Works with plain and conversational prompts, tools,
    `environment_factory`, `rollout_func`, PEFT and several processes. Groups may be split across processes.

    Filtering drops whole groups after they were rewarded. They enter no forward pass of the update and no term of the
    loss (`removal`). If nothing is kept, the weights do not change, also not by weight decay and momentum. TRL's
    learning-rate schedule still counts such a step.

    Raises ValueError for a TRL with other private methods, and for unknown names in `heedful`.
    """

    learns_pictures = True
    """Pictures of heedful's environments reach the learner. In TRL's own trainer those of a rollout_func do not."""

    reward_func_names: list[str]
    beta: float
    entropy_coef: float
    _last_world_entropy: float

    def __init__(self, *args: Any, heedful: HeedfulConfig | None = None, **kwargs: Any) -> None:
        self.heedful = heedful or HeedfulConfig()
        # The arguments of TRL's constructor are passed on unchanged, because they change with its releases.
        super().__init__(*args, **kwargs)
        compatibility.check(compatibility.PRIVATE, trainer=self)
        self._filter = self._chosen_filter()
        settings, rows = self.heedful, len(self.train_dataset) if hasattr(self.train_dataset, "__len__") else None
        prompts = self.args.generation_batch_size // self.num_generations
        plays = isinstance(self.rollout_func, EnvironmentRollouts)
        self._choosing = not isinstance(settings.choose, InOrder)
        known = rows is None, "a training dataset of known length"
        refill = settings.sampling_batches > 1 and (
            (isinstance(self._filter, KeepAll), "a filter that drops groups, such as DropConstant(on='reward')"),
            known,
            (sees(self), "prompts without pictures"),
        )
        choice = self._choosing and (
            known,
            ((rows or 0) <= prompts, f"more rows of training data than the {prompts} prompts of a generation batch"),
            (not (settings.outcome or plays), "success: name its reward function in HeedfulConfig(outcome=...)"),
        )
        for asked, needs in (
            (f"A refill (sampling_batches {settings.sampling_batches})", refill),
            (f"A choice of prompts ({settings.choose!r})", choice),
        ):
            for impossible, why in needs or ():
                if impossible:
                    raise ValueError(f"{asked} needs {why}.")
        self._generated: tuple[Any, Any, Any] = ([], [], None)
        self._images: Sequence[Sequence[Any] | None] = []
        self._pixels: dict[str, Any] = {}
        """The pictures of episodes that were played, while their batch is made."""
        self._refilling = False
        self._drawn: _Draw
        self._kept_in_window = 0
        self._batches = Batches(self, self.heedful, self._filter, self._leave_weights_if_nothing_was_kept)
        names = list(self.reward_func_names)  # TRL logs by name, so one name for two functions would lose a column
        earlier = [names[:place].count(name) for place, name in enumerate(names)]
        self.reward_func_names = [f"{name}_{n + 1}" if n else name for name, n in zip(names, earlier, strict=True)]

    @property
    def observer(self) -> Observer:
        """Observes every generation batch, on rank 0."""
        return self._batches.observer

    def _chosen_filter(self) -> Filter:
        chosen = self.heedful.filter
        if getattr(self.args, compatibility.FILTER_OF_TRL, None):
            warnings.warn(
                f"TRL filters by itself ({compatibility.FILTER_OF_TRL}), so heedful's filter is disabled. The "
                "diagnostics continue.",
                stacklevel=3,
            )
            return KeepAll(on=chosen.on)
        if isinstance(chosen, KeepAll):
            return chosen
        if self.args.steps_per_generation > 1 or self.accelerator.num_processes > 1:
            bonus = self.entropy_coef != 0 or self.use_adaptive_entropy
            for sentence in removal.cut_dependent(
                self.loss_type, bonus, self.top_entropy_quantile, self.aux_loss_enabled
            ):
                warnings.warn(sentence, stacklevel=3)
        if self.is_deepspeed_enabled:
            warnings.warn(
                "DeepSpeed updates the weights by itself, so a step without kept groups still applies "
                "weight decay and momentum.",
                stacklevel=3,
            )
        return chosen

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """TRL's `train`. The measurements resume from the same checkpoint."""
        given = None if isinstance(resume_from_checkpoint, bool) else resume_from_checkpoint
        self._batches.resumed_from = None if given is None else Path(given)
        self._kept_in_window = 0
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _generate(self, prompts: list[Any]) -> Any:
        """TRL's result, stored before TRL masks truncated completions. After that their sampled ids are unknown."""
        generated = super()._generate(prompts)
        self._generated = generated[:3]
        images = generated[6]
        self._images = pictures_in(prompts) if images is None else images
        played = generated[5].get(FIELD) or []
        shown = [[image for turn in one.turns for image in turn.reply.prompt.images] for one in played]
        self._pixels = pixels_of(self, shown) if any(shown) else {}
        return generated

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, *sizes: Any, **fields: Any
    ) -> Any:
        """TRL's log-probabilities. While a batch is made, with the pictures of its episodes."""
        found = super()._get_per_token_logps_and_entropies
        if not self._pixels:
            return found(model, input_ids, attention_mask, *sizes, **removal.if_shown(fields))
        size = fields.pop("batch_size", None) or len(input_ids)
        pixels = {**self._pixels, **kinds_of(self, input_ids)}
        # TRL's own micro-batches give pixels also to rows that show no picture.
        logps, entropies, losses = zip(
            *(
                found(model, input_ids[rows], attention_mask[rows], *sizes, **{**fields, "num_images": None, **part})
                for rows, part in removal.micro_batches(pixels, len(input_ids), size)
            ),
            strict=True,
        )
        return (
            torch.cat(logps),
            None if entropies[0] is None else torch.cat(entropies),
            None if losses[0] is None else torch.stack(losses).mean(),
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch without the dropped groups, after the observation."""
        if self._choosing and self.model.training and not self._refilling:
            groups = len(inputs) * self.accelerator.num_processes // self.num_generations
            inputs = self._rows_at(self._batches.draw(groups))
        asked = [repr(example) for example in inputs]  # TRL adds to them what a rollout_func returns
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        rows = self.accelerator.num_processes * len(inputs)
        if self._pixels:
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
            batch |= {**self._pixels, **kinds_of(self, ids)}
            self._pixels = {}
        if not self.model.training:
            self._extend_logs(rows, None)
            return batch
        # The raw rewards, as TRL logs them before any normalisation.
        columns = [list(self._logs["rewards"][name])[-rows:] for name in self.reward_func_names]
        rewards_BF = torch.tensor(columns, device=self.accelerator.device).T
        first = _Draw(batch, gather_object(self._local_completions(inputs, rewards_BF)), rewards_BF)
        if self._refilling:
            self._drawn = first
            return batch
        draws, collection = self._refilled(first, asked)
        completions = [one for draw in draws for one in draw.completions]
        refills = collection.ending != "off"
        most = collection.wanted if refills else None
        apart = difference_metrics([draw.batch for draw in draws], gather_object)
        seen = self._batches.observe(completions, [*(collection.metrics() if refills else ()), *apart], most)
        self._extend_logs(len(completions), seen)
        return self._filtered(draws, seen.verdicts)

    def _refilled(self, first: _Draw, asked: Sequence[str]) -> tuple[list[_Draw], Collection]:
        """The generation batch, and further ones while too few groups vary. All processes draw alike."""
        draws, size, varying = [first], self.num_generations, 0
        wanted = collected = len(first.completions) // size
        if self.heedful.sampling_batches == 1:
            return draws, Collection((), wanted, "off")
        self._batches.refilled = broadcast_object_list([self._batches.refilled])[0]
        undrawn = None if self._choosing else self._undrawn(asked)
        ending: RefillEnding = "bound"
        while ending == "bound":
            varying += self._batches.observer.varying(in_groups(draws[-1].completions, size))
            sampled = sum(sum(row.sampled) for draw in draws for row in draw.completions)
            if varying >= wanted:
                ending = "enough"
            elif len(draws) == self.heedful.sampling_batches or sampled >= (self.heedful.sampling_tokens or math.inf):
                break
            elif places := self._drawn_from(undrawn, refill_size(wanted - varying, varying, collected, wanted)):
                draws.append(self._draw(places))
                collected += len(places)
            else:
                ending = "pool"
        return draws, Collection((), wanted, ending, len(draws), collected)

    def _undrawn(self, asked: Sequence[str]) -> Iterator[int]:
        """Places in the training data, in a random order of its own, that this update has not drawn yet.

        TRL does not say which places its batch has, so they are known by their content. `refilled` counts the places
        that refills have passed, and a resumed run goes on there.
        """
        data, drawn = self._data, gather_object(list(asked))
        left = Counter(drawn[:: self.num_generations])
        seed = self.heedful.seed_in(self.args)
        passed: set[int] = set()
        while len(passed) < len(data):
            time, at = divmod(self._batches.refilled, len(data))
            if not at or not passed:
                generator = torch.Generator().manual_seed(derive(seed, "refill", time))
                order = torch.randperm(len(data), generator=generator).tolist()
            self._batches.refilled += 1
            place = order[at]
            if place in passed:
                continue
            passed.add(place)
            content = repr(data[place])
            if left[content]:
                left[content] -= 1
            else:
                yield place

    def _drawn_from(self, undrawn: Iterator[int] | None, groups: int) -> list[int]:
        """The next `groups` places, or a few more or less, so that every process has equally many rows.

        `undrawn`: `None` = the chooser draws them."""
        processes, size = self.accelerator.num_processes, self.num_generations
        even = processes // math.gcd(processes, size)
        asked = -(-groups // even) * even
        if undrawn is None:
            return self._batches.draw(asked, even)
        places = list(islice(undrawn, asked))
        return places[: len(places) // even * even]

    def _rows_at(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """This process's rows of a generation batch of the prompts at these places of the training data."""
        all_rows = [place for place in places for _ in range(self.num_generations)]
        rows = len(all_rows) // self.accelerator.num_processes
        mine = all_rows[self.accelerator.process_index * rows :][:rows]
        data = self._data
        return [data[place] for place in mine]

    @property
    def _data(self) -> Any:
        """The training data as TRL's loader shows it to reward functions (`remove_unused_columns`)."""
        return self._remove_unused_columns(self.train_dataset, "training")

    def _draw(self, places: Sequence[int]) -> _Draw:
        """One more generation batch, of the prompts at these places of the training data."""
        self._refilling = True
        try:
            self._generate_and_score_completions(self._rows_at(places))
        finally:
            self._refilling = False
        return self._drawn

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """TRL's loss. With idle rows in the batch, a mean over rows is corrected to a mean over kept rows."""
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
        if not kept:  # TRL's entropy and KL of idle rows are meaningless
            for name, values in list(self._metrics["train"].items()):
                del values[logged.get(name, 0) :]
                if not values:
                    del self._metrics["train"][name]
        if not self._kept_in_window:
            self.entropy_coef, self._last_world_entropy = controller
        return loss * float(inputs[removal.LOSS_FACTOR])

    def _leave_weights_if_nothing_was_kept(self) -> None:
        """Prevent the optimiser step if no process has a kept row. There is then no weight decay either."""
        if not self._kept_in_window:
            for parameter in self.model.parameters():
                parameter.grad = None  # an optimiser skips parameters without a gradient
        self._kept_in_window = 0

    def _filtered(self, draws: Sequence[_Draw], verdicts: Sequence[Verdict]) -> dict[str, Any]:
        kept_P = [verdict.kept for verdict in verdicts]
        batch = removal.merged([draw.batch for draw in draws])
        if all(kept_P) and len(draws) == 1:
            batch[removal.KEPT] = batch["completion_mask"].new_ones(len(batch["completion_mask"]), dtype=torch.bool)
            return self._scaled(batch, 1.0, len(kept_P), len(kept_P))
        kept_B = [kept for kept in kept_P for _ in range(self.num_generations)]
        processes, own = self.accelerator.num_processes, self.accelerator.process_index
        of_process = self._rows_of_processes(draws)
        by_process = [[kept_B[row] for row in rows] for rows in of_process]
        advantages = self._advantages(torch.cat([draw.rewards_BF for draw in draws]), kept_B)
        if advantages is not None:
            batch["advantages"] = advantages[of_process[own]].to(batch["advantages"])
        if len(draws) > 1 and processes > 1:  # what one process sampled may be more than its share of an update
            batch, by_process = self._dealt(batch, by_process[own])
        rows = removal.rows_needed([sum(kept) for kept in by_process], self.args.steps_per_generation)
        smaller = removal.remove(batch, by_process[own], rows, trim=self.pad_to_multiple_of is None)
        smaller["num_items_in_batch"] = self.accelerator.gather(removal.trained_tokens(smaller)).sum()
        held = len(smaller["advantages"]) * processes
        factor = removal.row_factor(self.loss_type, held, sum(kept_B))
        smaller["advantages"] = smaller["advantages"] * factor
        return self._scaled(smaller, factor, sum(kept_P), len(kept_P))

    def _dealt(self, batch: dict[str, Any], kept: Sequence[bool]) -> tuple[dict[str, Any], list[list[bool]]]:
        """The kept rows of all processes with some idle ones, and for each process which of them it is to keep."""
        processes, device = self.accelerator.num_processes, batch["completion_mask"].device
        sent = removal.remove(batch, kept, max(sum(kept), self.args.steps_per_generation), trim=False)
        on_cpu = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in sent.items()}
        whole = removal.merged(gather_object([on_cpu]))
        dealt = [[False] * len(whole[removal.KEPT]) for _ in range(processes)]
        for place, row in enumerate(whole[removal.KEPT].nonzero()[:, 0].tolist()):
            dealt[place % processes][row] = True
        return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in whole.items()}, dealt

    def _rows_of_processes(self, draws: Sequence[_Draw]) -> list[list[int]]:
        """For each process, the numbers of its rows among those of all: a process holds a part of each draw."""
        processes, start = self.accelerator.num_processes, 0
        found: list[list[int]] = [[] for _ in range(processes)]
        for draw in draws:
            rows = len(draw.completions) // processes
            for process in range(processes):
                found[process] += range(start + process * rows, start + (process + 1) * rows)
            start += len(draw.completions)
        return found

    def _advantages(self, rewards_BF: Tensor, kept_B: Sequence[bool]) -> Tensor | None:
        """Advantages over the kept rows, if TRL's use statistics of the batch. `None`: TRL's own are right."""
        over_batch = self.scale_rewards == "batch" or self.multi_objective_aggregation == "normalize_then_sum"
        if not over_batch or not any(kept_B):
            return None
        return removal.advantages_over(
            rewards_BF,
            self.reward_weights.to(rewards_BF.device),
            self.num_generations,
            torch.tensor(kept_B, device=rewards_BF.device),
            normalize_first=self.multi_objective_aggregation == "normalize_then_sum",
        )

    def _scaled(self, batch: dict[str, Any], row_factor: float, kept: int, groups: int) -> dict[str, Any]:
        scale = loss_scale_factor(self.heedful.loss_scale, kept, groups, self._filter.share)
        batch[removal.ROW_FACTOR] = torch.tensor(row_factor)
        batch[removal.LOSS_FACTOR] = torch.tensor(scale)
        return batch

    def _local_completions(self, inputs: Sequence[dict[str, Any]], rewards_BF: Tensor) -> list[Completion]:
        start = self.accelerator.process_index * len(inputs)
        rewards = rewards_BF[start : start + len(inputs)].tolist()
        prompts, completions, masks = self._generated
        return completions_of(self, inputs, prompts, completions, masks, rewards, self.heedful.outcome, self._images)

    def _extend_logs(self, rows: int, seen: Seen | None) -> None:
        """Add columns to the last `rows` of TRL's completions, and values to its metrics.

        The columns are empty for evaluations, and on every rank except the one that writes the log."""
        told: list[dict[str, Any]] = [{}] * rows
        if seen is not None and seen.groups:
            tags = ThoughtTags(self.heedful.tags.open, self.heedful.tags.close)
            members = [
                (trajectory, verdict.reason, f"{seen.step}/{group}/{trajectory.member}")
                for group, verdict in enumerate(seen.verdicts)
                for trajectory in seen.groups[group].trajectories
            ]
            logged = list(self._logs["completion"])[-rows:]  # of a refill TRL keeps the last rows
            told = [
                columns_of(*member, text, tags) for member, text in zip(members[-len(logged) :], logged, strict=True)
            ]
        for name in COLUMNS:
            self._logs["extra"][PREFIX + name].extend(columns.get(name) for columns in told)
        for name, value in self.heedful.logged(seen.metrics if seen is not None else ()).items():
            if name not in LOGGED_BY_TRL:
                self._metrics["train"][name].append(value)
