"""The supported verl version, and the checks of other versions.

A changed private method is found when verl imports heedful's module, not in the middle of a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from heedful.integrations.watching import check_version

TESTED = "0.9"
"""The series of verl releases that the tests run with."""

TRAINER: Mapping[str, tuple[str, ...]] = {
    "_setup": ("self",),
    "_balance_batch": ("self", "batch", "metrics", "logging_prefix", "keep_minibatch"),
    "_update_actor": ("self", "batch", "metrics"),
    "_update_critic": ("self", "batch", "metrics"),
    "_save_checkpoint": ("self",),
    "_load_checkpoint": ("self",),
    "on_step_end": ("self",),
}
"""The methods of `PPOTrainer` that heedful's trainers override, with their parameters."""

WORKER: Mapping[str, tuple[str, ...]] = {
    "compute_log_prob": ("self", "data"),
    "set_loss_fn": ("self", "loss_fn"),
}
"""The methods of `ActorRolloutRefWorker` that they call."""

LOSSES: Mapping[str, tuple[str, ...]] = {
    "ppo_loss": ("config", "model_output", "data", "dp_group"),
    "value_loss": ("config", "model_output", "data", "dp_group"),
}
"""The functions of `verl.workers.utils.losses` that heedful's losses call."""

OUTPUT = (
    "prompt_ids",
    "response_ids",
    "response_mask",
    "response_logprobs",
    "reward_score",
    "num_turns",
    "extra_fields",
)
"""The fields of `AgentLoopOutput` that heedful's agent loop fills."""

OWN_FILTERS = ("filter_groups", "reward_variance_filtering")
"""The sections of `algorithm` in which verl filters groups itself. The second is proposed in its pull request 7894."""


def check(version: str | None = None) -> None:
    """Warn about an untested verl version, and refuse one with other methods.

    Raises ImportError for a verl without its second trainer, and ValueError for changed methods.
    """
    import verl

    parts = f"the methods of verl {TESTED} that it overrides and calls"
    instead = "train without heedful and read the rollout dumps with `heedful audit`"
    check_version("verl", version or str(verl.__version__), (TESTED,), parts, changed_methods(), instead)


def changed_methods() -> list[str]:
    """What heedful uses of verl and does not find as it expects. Empty for a supported verl."""
    try:
        from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
        from verl.trainer.ppo.v1 import PPOTrainer
        from verl.workers.engine_workers import ActorRolloutRefWorker
        from verl.workers.utils import losses
    except ImportError as error:
        return [f"an import ({error})"]
    used = ((TRAINER, PPOTrainer), (WORKER, ActorRolloutRefWorker), (LOSSES, losses))
    changed = [
        f"{owner.__name__.rpartition('.')[2]}.{name}"
        for methods, owner in used
        for name, parameters in methods.items()
        if not hasattr(owner, name) or tuple(inspect.signature(getattr(owner, name)).parameters) != parameters
    ]
    return changed + [f"AgentLoopOutput.{name}" for name in OUTPUT if name not in AgentLoopOutput.model_fields]


def filters_itself(algorithm: Mapping[str, Any]) -> str:
    """The section of verl's `algorithm` in which verl's own filter is switched on. Empty if none is."""
    for name in OWN_FILTERS:
        section = algorithm.get(name)
        if isinstance(section, Mapping) and section.get("enable"):
            return f"algorithm.{name}"
        if section is True:
            return f"algorithm.{name}"
    return ""
