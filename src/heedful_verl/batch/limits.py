"""What verl's configuration says about reading thoughts with the actor's workers. Neither verl nor torch is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heedful.integrations.watching import truncating

COUNTED = ("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
"""The values of verl's `loss_agg_mode` that divide by a number of rows."""

_DTYPES = {"fp32": "float32", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What the workers can take."""

    multiple: int
    """The number of rows of a call is a multiple of it: ranks times rows of a micro-batch."""
    window: int | None
    """Most tokens of a row. `None` = no limit is known."""
    dtype: str
    """The dtype of the forward pass, which decides the rounding."""


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


def worker_limits(config: Any, ranks: int, positions: int | None) -> WorkerLimits:
    """What the actor's workers can take. `positions`: the model's own limit."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    dynamic = bool(actor.get("use_dynamic_bsz"))
    micro = 1 if dynamic else int(rollout.log_prob_micro_batch_size_per_gpu or 1)
    limits = [positions, rollout.get("log_prob_max_token_len_per_gpu") if dynamic else None]
    known = [int(limit) for limit in limits if limit]
    engine = plain(actor.get("fsdp_config"))
    precision = engine.get("mixed_precision") or {}
    named = str(precision.get("param_dtype") or engine.get("dtype") or "bfloat16")  # as verl's engine computes
    return WorkerLimits(ranks * micro, min(known) if known else None, _DTYPES.get(named, named))


def plain(section: Any) -> dict[str, Any]:
    """A section of verl's configuration as a plain tree. Empty if it is missing."""
    if section is None or isinstance(section, dict):
        return dict(section or {})
    from omegaconf import OmegaConf

    return dict(OmegaConf.to_container(section, resolve=True))
