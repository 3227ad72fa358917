"""The optimizer's knobs. Torch-free, so that a command line can be built from them in milliseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heedful.boundary.limits import refuse_outside

LARGEST_LR = 1e6
"""Far above every use. AdamW divides the learning rate, and the quotient has to fit into float32."""

MOST_WARMUP = 10**15
"""Steps, as many as a run may have."""

LARGEST_CLIP = 1e38
"""Norms are computed in float32, which holds no larger number."""


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """AdamW under a linear warm-up to a constant learning rate."""

    lr: float = 1.5e-4
    warmup_steps: int = 5
    """Optimizer steps over which the learning rate rises to `lr`. The first step already takes lr / warmup_steps."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    gradient_clip: float = 1.0
    """Largest Euclidean norm of the whole gradient. Longer gradients are scaled down to it."""

    def __post_init__(self) -> None:
        refuse_outside("the optimizer's warmup_steps", self.warmup_steps, 0, MOST_WARMUP, whole=True)
        for name, value in (("lr", self.lr), ("gradient_clip", self.gradient_clip)):
            if not value > 0:
                raise ValueError(f"Expected the optimizer's {name} to be above 0, found {value}.")
        for name, value in (("lr", self.lr), ("weight_decay", self.weight_decay)):
            if not value <= LARGEST_LR:
                raise ValueError(f"Expected the optimizer's {name} to be at most {LARGEST_LR:g}, found {value}.")
        if not self.weight_decay >= 0:
            raise ValueError(f"Expected the optimizer's weight_decay to be at least 0, found {self.weight_decay}.")
        if self.gradient_clip != math.inf:  # which clips nothing
            refuse_outside("the optimizer's gradient_clip", self.gradient_clip, 0, LARGEST_CLIP)
        if not len(self.betas) == 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"Expected the optimizer's two betas to lie in [0, 1), found {self.betas}.")

    def lr_at(self, step: int) -> float:
        """The learning rate of optimizer step number `step`, counted from 0."""
        return self.lr * min(1.0, (step + 1) / max(1, self.warmup_steps))
