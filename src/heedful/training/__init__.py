"""One update: samples, batch, learner, objective, critic, optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.training.batch import UpdateSettings
    from heedful.training.critic import Critic
    from heedful.training.critic_config import CriticConfig
    from heedful.training.learner import Learner
    from heedful.training.lora_config import LoraConfig
    from heedful.training.optimizer_config import OptimizerConfig
    from heedful.training.samples import credit, make_samples, merge_rows

__all__ = [
    "Critic",
    "CriticConfig",
    "Learner",
    "LoraConfig",
    "OptimizerConfig",
    "UpdateSettings",
    "credit",
    "make_samples",
    "merge_rows",
]

__getattr__ = lazily(
    __name__,
    {
        "Critic": "heedful.training.critic",
        "CriticConfig": "heedful.training.critic_config",
        "Learner": "heedful.training.learner",
        "LoraConfig": "heedful.training.lora_config",
        "OptimizerConfig": "heedful.training.optimizer_config",
        "UpdateSettings": "heedful.training.batch",
        "credit": "heedful.training.samples",
        "make_samples": "heedful.training.samples",
        "merge_rows": "heedful.training.samples",
    },
)
