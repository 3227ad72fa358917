"""Float32 copies of half-precision weights for the optimizer.

A step smaller than the spacing of bfloat16 numbers is not lost. With lr 1e-6 nearly every step is that small.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_PRECISE = (torch.float32, torch.float64)


class MasterWeights:
    """The tensors that the optimizer changes: a model's parameters, or float32 copies of the half-precision ones."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self.optimized: list[torch.Tensor] = [
            parameter if parameter.dtype in _PRECISE else parameter.detach().float().requires_grad_()
            for parameter in self._parameters
        ]

    @property
    def copies(self) -> list[torch.Tensor]:
        """The copies only, in the order of the parameters: a part of the state of a resumed run."""
        return [copy.detach() for parameter, copy in self._pairs()]

    def load_copies(self, copies: Sequence[torch.Tensor]) -> None:
        """Load the copies that `copies` gave. Raises ValueError for others."""
        own = [copy for _, copy in self._pairs()]
        of_floats = isinstance(copies, list) and all(
            isinstance(saved, torch.Tensor) and saved.is_floating_point() for saved in copies
        )
        if not of_floats or [saved.shape for saved in copies] != [copy.shape for copy in own]:
            raise ValueError(f"Expected the float32 copies of {len(own)} tensors of weights, found others.")
        with torch.no_grad():
            for copy, saved in zip(own, copies, strict=True):
                copy.copy_(saved)

    def take_gradients(self) -> None:
        """Move the gradients of half-precision parameters to their copies."""
        for parameter, copy in self._pairs():
            copy.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None

    @torch.no_grad()
    def give_weights(self) -> None:
        """Round the copies into the half-precision parameters."""
        for parameter, copy in self._pairs():
            parameter.copy_(copy)

    def _pairs(self) -> list[tuple[torch.nn.Parameter, torch.Tensor]]:
        return [
            (parameter, copy)
            for parameter, copy in zip(self._parameters, self.optimized, strict=True)
            if parameter is not copy
        ]
