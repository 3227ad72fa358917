"""One step of AdamW as a sum of parts.

With the second moment and the clipped norm of the step held, the step is linear in the gradient. So it is the sum of
one step for each term of the loss, one for the first moment that it began with, and the weight decay. The parts say
what a term did in this step. They do not say how the step would have been without the term: then the second moment and
the clipped norm would differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

Tensors = list[torch.Tensor]
"""One tensor for each trained parameter, in order."""


@dataclass(frozen=True, slots=True)
class AdamWStep:
    """One step of AdamW before it is taken, with its second moment and the clipped norm of its gradient held."""

    metric: Tensors
    """D = lr / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), with the second moment v of after the step. 0 where a
    parameter has no gradient: it takes no step."""
    moments: Tensors
    """The first moments before the step."""
    beta: float
    clip: float
    """The factor of the whole gradient, at most 1."""
    decayed: float
    """lr x weight decay."""

    @classmethod
    def ahead(
        cls,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
        lr: float,
        most: float,
    ) -> AdamWStep:
        """The next step of `torch.optim.AdamW` on `parameters`, by `gradients` that are clipped to the norm `most`."""
        settings = optimizer.param_groups[0]
        (beta, other), eps = settings["betas"], settings["eps"]
        known = [one for one in gradients if one is not None]
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(one) for one in known])))
        clip = min(1.0, most / (norm + 1e-6))  # as clip_grad_norm_ does
        metric, moments = [], []
        for parameter, gradient in zip(parameters, gradients, strict=True):
            state = optimizer.state.get(parameter, {})
            moments.append(state["exp_avg"].clone() if state else torch.zeros_like(parameter, requires_grad=False))
            if gradient is None:
                metric.append(torch.zeros_like(parameter, requires_grad=False))
                continue
            step = float(state["step"]) + 1 if state else 1.0
            second = (1 - other) * (clip * gradient).square()
            if state:
                second += other * state["exp_avg_sq"]
            root = (second / (1 - other**step)).sqrt_().add_(eps)
            metric.append(root.reciprocal_().mul_(lr / (1 - beta**step)))
        return cls(metric, moments, beta, clip, lr * settings["weight_decay"])

    def moved(self, gradient: Tensors) -> Tensors:
        """The first moment that a term's gradient adds in this step."""
        return [(1 - self.beta) * self.clip * one for one in gradient]

    def step(self, moments: Tensors) -> Tensors:
        """The part of the step that these first moments take."""
        return [-scale * one for scale, one in zip(self.metric, moments, strict=True)]

    def carried(self) -> Tensors:
        """What is left of the first moments from before the step."""
        return [self.beta * one for one in self.moments]

    def decay(self, parameters: Sequence[torch.Tensor]) -> Tensors:
        """The part of the weight decay."""
        return [
            -self.decayed * one.detach() if bool(scale.any()) else torch.zeros_like(one, requires_grad=False)
            for one, scale in zip(parameters, self.metric, strict=True)
        ]


def product(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """The inner product of two lists of tensors, in float64."""
    return math.fsum(
        float(each.double().flatten() @ same.double().flatten()) for each, same in zip(one, other, strict=True)
    )
