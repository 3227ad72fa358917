"""heedful's trainers for verl: verl's own, with the filter and the diagnostics between the rewards and the update.

The seam is `_balance_batch`, which verl calls once per update: after sampling and rewards, before `old_log_probs`. The
gradient equals that of a batch without the dropped rows. `compatibility` lists the methods of verl that are used here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import open_dict
from verl.trainer.ppo.v1 import (
    PPOTrainerColocateAsync,
    PPOTrainerSeparateAsync,
    PPOTrainerSync,
    register_trainer,
)
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.fs import copy_to_local
from verl.utils.model import get_generation_config

from heedful.algorithms import loss_scale_factor
from heedful.filters import KeepAll
from heedful.integrations.watching import STATE, Observer, Record, Seen, load_state, save_state
from heedful.models import carries_states, longest_context_of
from heedful_verl.batch import limits, loss, queue, watcher
from heedful_verl.batch.rows import Sampled, mini_batch_counts, sampled_of
from heedful_verl.batch.scorer import WorkerScorer
from heedful_verl.play.agent_loop import stop_ids
from heedful_verl.settings import MODES, SECTION, read_section

_LOG = logging.getLogger("heedful")

PACKED = (
    "This model carries states from token to token, and verl packs rows by default: transformers' layers may then mix "
    "them, and log-probabilities and gradients are wrong without a word (docs/verl.md). Give "
    "actor_rollout_ref.model.use_remove_padding=False, unless verl has a way of its own for this model."
)
LATER_SLICE = "verl measures a step on its first update only: the weights have moved since they sampled this part"


if TYPE_CHECKING:
    from verl.trainer.ppo.v1 import PPOTrainer as _Trainer
else:
    _Trainer = object


class HeedfulMixin(_Trainer):
    """Reward-variance filtering and a diagnosis of template collapse, in front of any v1 trainer of verl.

        @register_trainer("mine")
        class Mine(HeedfulMixin, TheirTrainer): ...

    The settings are the section `heedful` of verl's configuration (`HeedfulConfig`). Dropped groups leave the queue
    before the forward passes of the update. If nothing is kept, the weights do not change, also not by weight decay and
    momentum. Raises ValueError for settings that cannot be applied, before any worker starts.
    """

    def __init__(self, config: Any) -> None:
        with open_dict(config):  # verl compares the name of the mode with its own names
            config.trainer.v1.trainer_mode = self._mode_of_verl()
        section = config.get(SECTION)
        self.heedful = read_section(limits.plain(section) if section is not None else None)
        problems = watcher.refusals(config, self.heedful)
        if problems:
            raise ValueError("\n".join(problems))
        self._filter, told = watcher.chosen_filter(self.heedful, limits.plain(config.algorithm))
        self.drops = not isinstance(self._filter, KeepAll)
        """The filter may drop rows."""
        for sentence in [*filter(None, [told]), *(watcher.warnings_of(config) if self.drops else [])]:
            _LOG.warning(sentence)
        self.observer: Observer
        """Observes every sampled batch. Made as soon as verl has its tokenizer."""
        self.collapsed = False
        """An alarm that names a collapse was raised in this run."""
        self._resumed: tuple[Mapping[str, Any], Path] | None = None
        """The state of the checkpoint that was loaded, and its folder."""
        self._begun = self._frozen = False
        self._saved_step = -1
        super().__init__(config)

    @classmethod
    def _mode_of_verl(cls) -> str:
        """The name of the mode of verl that this class stands for: that of its nearest registered parent."""
        names = {trainer: name for name, trainer in TRAINER_REGISTRY.items() if name in MODES.values()}
        return next(names[parent] for parent in cls.__mro__ if parent in names)

    def _setup(self) -> None:
        super()._setup()
        if not self.drops:
            return
        actor = self.config.actor_rollout_ref.actor
        if not (self.config.get("distillation") or {}).get("enabled"):
            self.actor_rollout_wg.set_loss_fn(partial(loss.counted_loss, config=omega_conf_to_dataclass(actor)))
        if self.use_critic:
            critic = omega_conf_to_dataclass(self.config.critic)
            self.critic_wg.set_loss_fn(partial(loss.counted_value_loss, config=critic))

    def _load_checkpoint(self) -> None:
        """verl's, and then the state of the measurements. verl calls it at the end of `_setup`."""
        super()._load_checkpoint()
        self.observer = self._new_observer()
        checkpoint = self._resumed_checkpoint()
        if checkpoint is None:
            return
        state = load_state(checkpoint)
        if state is None:
            _LOG.warning(
                f"heedful expected {STATE} in {checkpoint}, found none: measurements continue with new baselines, "
                "numbered from 0."
            )
            return
        self.observer.load_state(state)
        self._resumed = state, checkpoint

    def _save_checkpoint(self) -> None:
        """The state of the measurements, and then verl's checkpoint, whose last file makes it count."""
        folder = Path(str(self.config.trainer.default_local_dir), f"global_step_{self.global_steps}")
        folder.mkdir(parents=True, exist_ok=True)
        save_state(folder, self.observer.state())
        super()._save_checkpoint()
        self._saved_step = self.global_steps

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *given: Any, **named: Any) -> Any:
        """verl's balanced batch without the dropped groups, after the observation."""
        sampled = sampled_of(
            queue.read(batch),
            int(self.config.actor_rollout_ref.rollout.n),
            self.heedful.outcome,
            self.global_steps - 1,
        )
        seen = self._observe(sampled)
        metrics.update(self.heedful.logged(seen.metrics))
        self.collapsed = self.collapsed or any(alarm.collapse for alarm in seen.raised)
        kept = sum(verdict.kept for verdict in seen.verdicts)
        self._frozen = not kept
        if kept:
            pairs = zip(sampled.keys_P, seen.verdicts, strict=True)
            batch = queue.without(batch, [key for keys, verdict in pairs if not verdict.kept for key in keys])
        batch = super()._balance_batch(batch, metrics, *given, **named)
        return self._counted(batch, kept, len(seen.verdicts)) if self.drops and kept else batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's update. None if no group was kept."""
        return batch if self._frozen else super()._update_actor(batch, metrics)

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's update of the critic. None if no group was kept."""
        return batch if self._frozen else super()._update_critic(batch, metrics)

    def on_step_end(self) -> None:
        """verl's weight sync. After a collapse the run ends here, saved."""
        if self.collapsed and self.heedful.on_collapse == "stop":
            _LOG.warning(f"heedful ends the training after step {self.global_steps}, as heedful.on_collapse says.")
            self.total_training_steps = self.global_steps
            if self._saved_step != self.global_steps:
                self._save_checkpoint()
        super().on_step_end()

    def fit(self, agent_loop_manager: Any) -> None:
        """verl's `fit`. The record is closed at its end."""
        try:
            super().fit(agent_loop_manager)
        finally:
            self.observer.close()

    def _observe(self, sampled: Sampled) -> Seen:
        """Verdicts and measurements of a batch, before any of its rows is dropped."""
        observer = self.observer
        if not self._begun:
            watcher.check_names(self.heedful, self._filter, sampled)
            observer.diagnostician.unknown = watcher.unknown_to_verl(self.config, self.heedful, sampled.played)
            self._begin_record()
        observer.diagnostician.unreadable = limits.why_unreadable(self.config)
        if sampled.images:
            observer.diagnostician.unreadable = "rows with images, audio or video, which are not scored yet"
        elif self.local_trigger_step > 0:
            observer.diagnostician.unreadable = LATER_SLICE
        observer.diagnostician.right = watcher.rightness_in(sampled, self.heedful.play.trust)
        return observer.observe(sampled.members_PG, self.global_steps - 1, [sampled.stale_share()])

    def _counted(self, batch: Any, kept: int, groups: int) -> Any:
        """The batch with the columns that the losses read."""
        real, ranks = queue.real_rows(batch), self._ranks()
        members = int(self.config.actor_rollout_ref.rollout.n)
        scale = loss_scale_factor(self.heedful.loss_scale, kept, groups, self._filter.share)
        rows = int(self.config.actor_rollout_ref.actor.ppo_mini_batch_size) * members
        columns: dict[str, list[float]] = {loss.SCALE: [scale] * len(real)}
        if len(real) % rows == 0:  # during the warm-up of a critic the actor is not updated
            columns[loss.ROWS] = list(map(float, mini_batch_counts(real, ranks, rows)))
        if self.use_critic:
            rows = int(self.config.critic.ppo_mini_batch_size) * members
            columns[loss.CRITIC_ROWS] = list(map(float, mini_batch_counts(real, ranks, rows)))
        return queue.annotate(batch, columns)

    def _ranks(self) -> int:
        """The number of data-parallel ranks of the actor, which verl has asked for before."""
        group = self.actor_rollout_wg
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        return int(max(group._dispatch_info["actor"])) + 1

    def _new_observer(self) -> Observer:
        model = self.config.actor_rollout_ref.model
        trusted = bool(model.get("trust_remote_code", False))
        folder = copy_to_local(model.path)
        ends = stop_ids(get_generation_config(folder, trust_remote_code=trusted), self.tokenizer)
        known = omega_conf_to_dataclass(model).hf_config
        if model.get("use_remove_padding") and carries_states(known):
            _LOG.warning(PACKED)
        most = limits.worker_limits(self.config, self._ranks(), longest_context_of(known))
        scorer = WorkerScorer(self.actor_rollout_wg.compute_log_prob, most)
        return watcher.observer_of(self.config, self.heedful, self._filter, self.tokenizer, ends, scorer)

    def _resumed_checkpoint(self) -> Path | None:
        """The folder of the checkpoint that verl has loaded, if it has."""
        trainer = self.config.trainer
        if trainer.resume_mode == "disable" or not self.global_steps:
            return None
        if trainer.resume_mode == "resume_path":
            return Path(os.path.abspath(str(trainer.resume_from_path)))
        return Path(os.path.abspath(str(trainer.default_local_dir)), f"global_step_{self.global_steps}")

    def _begin_record(self) -> None:
        """Claim a folder for the record, or continue that of the interrupted run."""
        self._begun = True
        if not self.heedful.record:
            return
        own = Path(os.path.abspath(str(self.config.trainer.default_local_dir)))
        known = Record.of_checkpoint(*self._resumed, own) if self._resumed else None
        unknown = self.observer.diagnostician.unknown
        self.observer.begin(known or watcher.claim_record(self.config, self.heedful, self._filter, unknown))


@register_trainer("heedful_sync")
class HeedfulSync(HeedfulMixin, PPOTrainerSync):
    """verl's trainer `sync` with heedful."""


@register_trainer("heedful_colocate_async")
class HeedfulColocateAsync(HeedfulMixin, PPOTrainerColocateAsync):
    """verl's trainer `colocate_async` with heedful. Batches of older weights are measured with the present ones."""


@register_trainer("heedful_separate_async")
class HeedfulSeparateAsync(HeedfulMixin, PPOTrainerSeparateAsync):
    """verl's trainer `separate_async` with heedful. Not tested: it needs GPUs for training and others for sampling."""
