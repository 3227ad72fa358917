"""Algorithms as rows of a table, advantage estimators, and the terms of the loss.

Each name is importable from here, for instance `from heedful.algorithms import Grpo, GroupRelative`. Estimators take
plain numbers and need no torch: `GroupRelative()([1, 0, 0, 1])`. The losses need torch, so they are a module of their
own: `from heedful.algorithms import losses`. What is not in `__all__` is private.
"""

from heedful.algorithms.advantages import AboveQuantile, GroupRelative, LeaveOneOut, PerSuccess
from heedful.algorithms.entropy_control import ENTROPY_CONTROLS, ConstantEntropy, EntropyTarget, LinearEntropy
from heedful.algorithms.gae import Gae, explained_variance
from heedful.algorithms.returns import TurnReturns
from heedful.algorithms.table import (
    ALGORITHMS,
    ESTIMATORS,
    Algorithm,
    Cispo,
    Dapo,
    DrGrpo,
    Grpo,
    Gspo,
    LossScale,
    MaxRl,
    Ppo,
    Qae,
    Rloo,
    check_loss_scale,
    loss_scale_factor,
)

__all__ = [
    "ALGORITHMS",
    "ENTROPY_CONTROLS",
    "ESTIMATORS",
    "AboveQuantile",
    "Algorithm",
    "Cispo",
    "ConstantEntropy",
    "Dapo",
    "DrGrpo",
    "EntropyTarget",
    "Gae",
    "GroupRelative",
    "Grpo",
    "Gspo",
    "LeaveOneOut",
    "LinearEntropy",
    "LossScale",
    "MaxRl",
    "PerSuccess",
    "Ppo",
    "Qae",
    "Rloo",
    "TurnReturns",
    "check_loss_scale",
    "explained_variance",
    "loss_scale_factor",
]
