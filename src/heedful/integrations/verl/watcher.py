"""The observer of a verl trainer's batches, made from verl's configuration, and what that configuration rules out."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.configuration import listed, to_json
from heedful.diagnostics.cross_scores.thoughts import ThoughtTags
from heedful.filters import KeepAll
from heedful.integrations.verl import compatibility
from heedful.integrations.verl.rows import SCORE, Sampled
from heedful.integrations.verl.scorer import WorkerLimits
from heedful.integrations.verl.settings import HeedfulConfig
from heedful.integrations.watching.completions import BatchReader
from heedful.integrations.watching.observer import Observer
from heedful.integrations.watching.record import Record
from heedful.integrations.watching.sampling import truncating
from heedful.integrations.watching.unknown import unknown_metrics
from heedful.measuring.diagnostician import Diagnostician
from heedful.measuring.swapped import TokenScorer
from heedful.models.own_tokenizer import difference_from_folder
from heedful.models.replies import ReplyParser
from heedful.protocols import Filter

UNKNOWN_SUCCESS = (
    "verl has rewards but no success: name the key of reward_extra_info that measures success in heedful.outcome"
)

_DTYPES = {"fp32": "float32", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}


def observer_of(
    config: Any, heedful: HeedfulConfig, chooses: Filter, tokenizer: Any, stop_ids: Sequence[int], scorer: TokenScorer
) -> Observer:
    """An observer of the trainer with this configuration of verl.

    Raises ValueError for a tokenizer that is not that of its folder.
    """
    refuse_replaced(tokenizer, str(config.actor_rollout_ref.model.path))

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    parser = ReplyParser(decode, heedful.tags, stop_ids)
    diagnostician = Diagnostician(
        heedful.diagnostics,
        scorer,
        heedful.seed,
        ThoughtTags(heedful.tags.open, heedful.tags.close),
        parser.piece,
        unknown=unknown_to_verl(config, heedful, played=False),
        unreadable=why_unreadable(config),
    )
    rollout = config.actor_rollout_ref.rollout
    return Observer(
        chooses,
        BatchReader(parser, decode, heedful.tags),
        diagnostician,
        float(rollout.temperature) or 1.0,
        heedful.seed,
        read=max(2, math.isqrt(heedful.max_pairs // max(1, int(rollout.n)))),
    )


def why_unreadable(config: Any) -> str:
    """Why the thoughts of this policy cannot be scored during training. Empty if they can."""
    rollout = config.actor_rollout_ref.rollout
    cuts = truncating(lambda name: rollout.get(name) if name in ("top_p", "top_k") else None)
    if cuts:
        return f"truncated sampling ({', '.join(cuts)})"
    if not float(rollout.temperature) > 0:
        return "greedy sampling (temperature 0)"
    actor = config.actor_rollout_ref.actor
    engine = actor.get(str(actor.get("strategy"))) or {}
    if (engine.get("router_replay") or {}).get("mode", "disabled") not in ("disabled", None):
        return "router replay, which reading other texts would disturb"
    return ""


def unknown_to_verl(config: Any, heedful: HeedfulConfig, played: bool) -> dict[str, str]:
    """The metrics that a batch of verl cannot give, each with the reason."""
    missing = unknown_metrics("verl", UNKNOWN_SUCCESS, heedful.outcome is not None or played, played)
    section = compatibility.filters_itself(plain(config.get("algorithm")))
    if section:
        why = f"verl takes constant groups out before heedful sees them ({section})"
        missing |= dict.fromkeys(("signal/mixed", "signal/solved", "signal/blind", "signal/failed"), why)
    return missing


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
        name for group in batch.members_PG for member in group if member.played for name in _components(member)
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


def refusals(config: Any, heedful: HeedfulConfig, counted: Sequence[str]) -> list[str]:
    """What verl's settings rule out for a filter that drops rows: one sentence for each. `counted`: the values of
    `loss_agg_mode` that divide by rows."""
    if isinstance(heedful.filter, KeepAll):
        return []
    sentences = []
    actor = config.actor_rollout_ref.actor
    by_rows = str(actor.loss_agg_mode) in counted
    if by_rows and bool(actor.get("shuffle")):
        sentences.append(
            f"Expected actor.shuffle=False with actor.loss_agg_mode={actor.loss_agg_mode} and a filter, found True: "
            "the real rows of a shuffled mini-batch are not known in advance. Take loss_agg_mode=token-mean, or do not "
            "shuffle."
        )
    if (config.get("distillation") or {}).get("enabled") and (by_rows or heedful.loss_scale != "kept"):
        sentences.append(
            "Expected no distillation with a loss that counts rows or is scaled, found distillation.enabled=True: "
            "heedful replaces verl's policy loss only. Take loss_agg_mode=token-mean and loss_scale=kept, or the "
            "filter keep_all."
        )
    estimator = str(config.algorithm.adv_estimator)
    if heedful.play.context.turns is not None and estimator != "grpo":
        sentences.append(
            f"Expected adv_estimator=grpo with windows of history (heedful.play.context), found {estimator}: in verl "
            "it takes each row for an episode. Play with the full history."
        )
    return sentences


def warnings_of(config: Any) -> list[str]:
    """What verl's settings make of a filter: one sentence for each."""
    if not (config.get("critic") or {}).get("enable"):
        return []
    actor, critic = config.actor_rollout_ref.actor.ppo_mini_batch_size, config.critic.ppo_mini_batch_size
    if actor == critic:
        return []
    return [
        f"critic.ppo_mini_batch_size={critic} differs from actor.ppo_mini_batch_size={actor}: verl fills up to whole "
        "mini-batches of both, so one may hold no real row. Its update is weight decay and momentum alone. Give both "
        "the same value."
    ]


def worker_limits(config: Any, ranks: int, positions: int | None) -> WorkerLimits:
    """What the actor's workers can take. `positions`: the model's own limit."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    dynamic = bool(actor.get("use_dynamic_bsz"))
    micro = 1 if dynamic else int(rollout.log_prob_micro_batch_size_per_gpu or 1)
    limits = [positions, rollout.get("log_prob_max_token_len_per_gpu") if dynamic else None]
    known = [int(limit) for limit in limits if limit]
    return WorkerLimits(ranks * micro, min(known) if known else None, _dtype(actor))


def _dtype(actor: Any) -> str:
    """The dtype in which the actor's engine computes. verl's default is bfloat16."""
    engine = plain(actor.get("fsdp_config"))
    precision = engine.get("mixed_precision") or {}
    named = str(precision.get("param_dtype") or engine.get("dtype") or "bfloat16")
    return _DTYPES.get(named, named)


def refuse_replaced(tokenizer: Any, folder: str) -> None:
    """Refuse a tokenizer that transformers built in place of its folder's: verl would train on other ids."""
    found = difference_from_folder(tokenizer, folder) if os.path.isdir(folder) else ""
    if found:
        raise ValueError(
            f"Expected the tokenizer of {folder} as its tokenizer.json has it, found a {type(tokenizer).__name__} that "
            f"differs ({found}): transformers made it for the model's architecture. Name the class "
            "PreTrainedTokenizerFast in the folder's tokenizer_config.json."
        )


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


def plain(section: Any) -> dict[str, Any]:
    """A section of verl's configuration as a plain tree. Empty if it is missing."""
    from omegaconf import OmegaConf

    if section is None:
        return {}
    return dict(OmegaConf.to_container(section, resolve=True) if OmegaConf.is_config(section) else section)


def _components(member: Any) -> set[str]:
    return {name for turn in member.played.turns for name in turn.rewards}
