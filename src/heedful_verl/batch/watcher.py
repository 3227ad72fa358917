"""The observer of a verl trainer's batches, made from verl's configuration, and what that configuration rules out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.boundary import listed, to_json
from heedful.envs.common import rightness_of
from heedful.filters import KeepAll
from heedful.integrations import watching
from heedful.integrations.watching import Observer, Record, unknown_metrics
from heedful.measuring import TokenScorer
from heedful.protocols import Filter
from heedful.types import Rightness, Task
from heedful_verl import compatibility
from heedful_verl.batch.limits import COUNTED, plain, why_unreadable
from heedful_verl.batch.rows import SCORE, Sampled
from heedful_verl.play.playing import environment_of
from heedful_verl.settings import HeedfulConfig

UNKNOWN_SUCCESS = (
    "verl has rewards but no success: name the key of reward_extra_info that measures success in heedful.outcome"
)


def observer_of(
    config: Any, heedful: HeedfulConfig, chooses: Filter, tokenizer: Any, stop_ids: Sequence[int], scorer: TokenScorer
) -> Observer:
    """An observer of the trainer with this configuration of verl.

    Raises ValueError for a tokenizer that is not that of its folder.
    """
    folder, rollout = str(config.actor_rollout_ref.model.path), config.actor_rollout_ref.rollout
    advice = "Name the class PreTrainedTokenizerFast in the folder's tokenizer_config.json."
    watching.refuse_replaced(tokenizer, folder if os.path.isdir(folder) else "", "verl", advice)
    observer = watching.observer_of(
        heedful,
        chooses,
        tokenizer,
        stop_ids,
        scorer,
        seed=heedful.seed,
        temperature=float(rollout.temperature) or 1.0,
        unknown=unknown_to_verl(config, heedful, played=False),
        unreadable=why_unreadable(config),
    )
    observer.read = heedful.groups_read(int(rollout.n))
    return observer


def unknown_to_verl(config: Any, heedful: HeedfulConfig, played: bool) -> dict[str, str]:
    """The metrics that a batch of verl cannot give, each with the reason."""
    missing = unknown_metrics("verl", UNKNOWN_SUCCESS, heedful.outcome is not None or played, played)
    section = compatibility.filters_itself(plain(config.get("algorithm")))
    if section:
        why = f"verl takes constant groups out before heedful sees them ({section})"
        missing |= dict.fromkeys(("signal/mixed", "signal/solved", "signal/unpaid", "signal/failed"), why)
    return missing


def rightness_in(batch: Sampled, trust: tuple[str, ...]) -> Rightness:
    """How right actions in a batch's tasks are, by the environments that played them."""

    def right(task: Task, before: Sequence[Sequence[str]] = ()) -> Mapping[str, float] | None:
        played = batch.environments.get(task.id)
        return None if played is None else rightness_of(environment_of(played, trust))(task, before)

    return right


def chosen_filter(heedful: HeedfulConfig, algorithm: Mapping[str, Any]) -> tuple[Filter, str]:
    """The filter to use, and a sentence if it is not the configured one or not the only one."""
    section = compatibility.filters_itself(algorithm)
    if not section:
        return heedful.filter, ""
    if section.endswith("filter_groups"):
        return heedful.filter, (
            f"verl filters by itself ({section}) and replaces constant groups before heedful's filter sees a batch. "
            "Metrics of constant groups are missing."
        )
    return KeepAll(on=heedful.filter.on), (
        f"verl filters by itself ({section}), so heedful's filter is disabled. The diagnostics continue."
    )


def check_names(heedful: HeedfulConfig, chooses: Filter, batch: Sampled) -> None:
    """Raise ValueError if `filter.on` names nothing that the rows hold."""
    components = {
        name
        for group in batch.members_PG
        for member in group
        if member.played
        for turn in member.played.turns
        for name in turn.rewards
    }
    known = {"reward", "outcome", SCORE, *components, *batch.measures}
    if chooses.on not in known:
        raise ValueError(
            f"heedful.filter.on names the values of the filter: expected one of {listed(sorted(known))}, found "
            f"{chooses.on!r}. verl's rows of this batch hold no other."
        )
    if chooses.on == "outcome" and heedful.outcome is None and not batch.played:
        raise ValueError(
            "The filter uses the outcome, but no key of reward_extra_info measures success: name one in "
            f"heedful.outcome (found {listed(sorted(batch.measures)) or 'no numbers'}), or filter by the reward."
        )


def refusals(config: Any, heedful: HeedfulConfig) -> list[str]:
    """What verl's settings rule out: one sentence for each."""
    estimator = str(config.algorithm.adv_estimator)
    sentences = []
    if heedful.play.context.turns is not None and estimator != "grpo":
        sentences.append(
            f"Expected adv_estimator=grpo with windows of history (heedful.play.context), found {estimator}: in verl "
            "it takes each row for an episode. Play with the full history."
        )
    if isinstance(heedful.filter, KeepAll):
        return sentences
    updated = {"actor_rollout_ref.actor": config.actor_rollout_ref.actor}
    if uses_critic(config):
        updated["critic"] = config.critic
    for name, section in updated.items():
        if section.get("loss_agg_mode") in COUNTED and section.get("shuffle"):
            sentences.append(
                f"Expected {name}.shuffle=False with {name}.loss_agg_mode={section.get('loss_agg_mode')} and a filter, "
                "found True: the real rows of a shuffled mini-batch are not known in advance. Take "
                "loss_agg_mode=token-mean, or do not shuffle."
            )
    counted = config.actor_rollout_ref.actor.get("loss_agg_mode") in COUNTED
    if (config.get("distillation") or {}).get("enabled") and (counted or heedful.loss_scale != "kept"):
        sentences.append(
            "Expected no distillation with a loss that counts rows or is scaled, found distillation.enabled=True: "
            "heedful replaces verl's policy loss only. Take loss_agg_mode=token-mean and loss_scale=kept, or the "
            "filter keep_all."
        )
    return sentences


def warnings_of(config: Any) -> list[str]:
    """What verl's settings make of a filter: one sentence for each."""
    if not uses_critic(config):
        return []
    actor, critic = config.actor_rollout_ref.actor.ppo_mini_batch_size, config.critic.ppo_mini_batch_size
    if actor == critic:
        return []
    return [
        f"critic.ppo_mini_batch_size={critic} differs from actor.ppo_mini_batch_size={actor}: verl fills up to whole "
        "mini-batches of both, so one may hold no real row. Its update is weight decay and momentum alone. Give both "
        "the same value."
    ]


def uses_critic(config: Any) -> bool:
    """Whether verl trains a critic: where it is switched on, and otherwise with GAE."""
    enabled = (config.get("critic") or {}).get("enable")
    return str(config.algorithm.adv_estimator) == "gae" if enabled is None else bool(enabled)


def claim_record(config: Any, heedful: HeedfulConfig, chooses: Filter, unknown: Mapping[str, str]) -> Record:
    """A new folder for the record of this run."""
    import torch

    folder = Path(str(config.trainer.default_local_dir))
    folder.mkdir(parents=True, exist_ok=True)
    return Record.claim(
        folder, described(config, heedful, chooses, unknown), str(config.trainer.device), torch.get_num_threads()
    )


def described(config: Any, heedful: HeedfulConfig, chooses: Filter, unknown: Mapping[str, str]) -> dict[str, Any]:
    """The configuration of the run for `config.json`: the settings that an audit needs, and verl's own."""
    import verl

    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    settings = to_json(heedful)
    return {
        "env": {"type": "verl"},
        "steps": config.trainer.get("total_training_steps"),
        "algorithm": {
            "type": str(config.algorithm.adv_estimator),
            "kl": float(actor.kl_loss_coef) if actor.use_kl_loss else 0.0,
        },
        **{name: settings[name] for name in ("loss_scale", "outcome", "tags", "diagnostics", "seed", "max_pairs")},
        "filter": {"type": type(chooses).__name__, **to_json(chooses)},
        "unknown": dict(unknown),
        "group_size": int(rollout.n),
        "trainer": f"verl {verl.__version__}",
        "verl": {
            "trainer_mode": str(config.trainer.v1.trainer_mode),
            "loss_agg_mode": str(actor.loss_agg_mode),
            "train_batch_size": int(config.data.train_batch_size),
            "ppo_mini_batch_size": int(actor.ppo_mini_batch_size),
            "temperature": float(rollout.temperature),
            "model": str(config.actor_rollout_ref.model.path),
            "lr": float(actor.optim.lr),
        },
    }
