"""One update: samples, batch, learner, objective, critic, optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.training.batch import UpdateSettings
    from heedful.training.critic import Critic
    from heedful.training.learner import Learner
    from heedful.training.samples import credit, make_samples, merge_rows
    from heedful.training.settings import CriticConfig, LoraConfig, OptimizerConfig

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
        "CriticConfig": "heedful.training.settings",
        "Learner": "heedful.training.learner",
        "LoraConfig": "heedful.training.settings",
        "OptimizerConfig": "heedful.training.settings",
        "UpdateSettings": "heedful.training.batch",
        "credit": "heedful.training.samples",
        "make_samples": "heedful.training.samples",
        "merge_rows": "heedful.training.samples",
    },
)
