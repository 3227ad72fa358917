"""The optimizer's knobs. Torch-free, so that a command line can be built from them in milliseconds."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from heedful.boundary import Coefficient, LearningRate, Natural, settings

Beta = Annotated[float, Interval(ge=0, lt=1)]


@settings
class OptimizerConfig:
    """AdamW under a linear warm-up to a constant learning rate."""

    lr: LearningRate = 1.5e-4
    warmup_steps: Natural = 5
    """Optimizer steps over which the learning rate rises to `lr`. The first step already takes lr / warmup_steps."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: Coefficient = 0.0
    gradient_clip: Annotated[float, Interval(gt=0)] = 1.0
    """Largest Euclidean norm of the whole gradient. Longer gradients are scaled down to it."""

    def lr_at(self, step: int) -> float:
        """The learning rate of optimizer step number `step`, counted from 0."""
        return self.lr * min(1.0, (step + 1) / max(1, self.warmup_steps))
