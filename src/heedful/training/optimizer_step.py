"""The optimizer step of policy and critic: AdamW under its schedule over one set of parameters.

A gradient that is not finite changes nothing. A state given by `state_dict` and loaded again continues with the same
bytes. Half-precision weights are stepped through float32 copies, so a step smaller than the spacing of bfloat16 numbers
is not lost. With lr 1e-6 nearly every step is that small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import torch

from heedful.training.gradients.adamw import AdamWStep
from heedful.training.ranks.sharding import Sharded, ShardedWeights, split_state, whole_state, whole_tensor
from heedful.training.ranks.world import World
from heedful.training.settings import OptimizerConfig

_PRECISE = (torch.float32, torch.float64)


class OptimizerStep:
    """The optimizer of one set of parameters. Parameters in half precision are stepped through float32 copies."""

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        config: OptimizerConfig,
        world: World | None = None,
        *,
        sharded: Sharded | None = None,
    ) -> None:
        """Only parameters that require a gradient are stepped, by the sum of the gradients of all ranks of `world`.

        `sharded`: the model that they belong to, if it is sharded. Its backward pass has already summed the gradients.
        """
        self._world = world if world is not None and sharded is None else World()
        self.config = config
        self.steps = 0
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        self._weights = MasterWeights(trained) if sharded is None else ShardedWeights(trained, half=sharded.half)
        self._optimizer = torch.optim.AdamW(
            self._weights.optimized, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
        )

    def take(self, of: str) -> float:
        """Take one optimizer step and set the gradients to `None`. Returns the gradient's norm before clipping.

        `of` names the trained part in the error. Raises FloatingPointError, before anything is changed, when the norm
        is not finite.
        """
        self._weights.take_gradients()
        self._world.sum_gradients(self._weights.optimized)
        norm = float(whole_tensor(torch.nn.utils.clip_grad_norm_(self._weights.optimized, self.config.gradient_clip)))
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"The gradient of optimizer step {self.steps + 1} of the {of} is not finite (norm {norm}); the weights "
                "were left as they were. Lower its learning rate, scale large rewards or advantages down, or look at "
                "the metrics of the steps before."
            )
        for parameters in self._optimizer.param_groups:
            parameters["lr"] = self.config.lr_at(self.steps)
        self._optimizer.step()
        self._weights.give_weights()
        self._optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return norm

    def ahead(self) -> AdamWStep:
        """The step that `take` would take now, split into parts. Changes nothing. Not for shards, nor several ranks."""
        assert isinstance(self._weights, MasterWeights)
        lr, most = self.config.lr_at(self.steps), self.config.gradient_clip
        return AdamWStep.ahead(self._optimizer, self.optimized, self._weights.gradients, lr, most)

    def gradients(self) -> list[torch.Tensor]:
        """The gradients of all parameters, as wide as `optimized`. 0 where there is none. Not for shards."""
        assert isinstance(self._weights, MasterWeights)
        found = zip(self._weights.gradients, self.optimized, strict=True)
        return [torch.zeros_like(own, requires_grad=False) if one is None else one for one, own in found]

    @property
    def optimized(self) -> list[torch.Tensor]:
        """The tensors that the step changes, in the order of the trained parameters."""
        return self._weights.optimized

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, the float32 copies and the number of steps. Sharded tensors are gathered."""
        return {
            "optimizer": whole_state(self._optimizer.state_dict()),
            "masters": self._weights.copies,
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state that `state_dict` gave. The settings stay those of the configuration."""
        # Copied, because this optimizer changes its tensors in place.
        loaded = {
            "state": deepcopy(state["optimizer"]["state"]),
            "param_groups": self._optimizer.state_dict()["param_groups"],
        }
        self._optimizer.load_state_dict(split_state(loaded, self._weights.optimized))
        self._weights.load_copies(state["masters"])
        self.steps = state["steps"]


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
        """Load the copies that `copies` gave."""
        own = [copy for _, copy in self._pairs()]
        with torch.no_grad():
            for copy, saved in zip(own, copies, strict=True):
                copy.copy_(saved)

    @property
    def gradients(self) -> list[torch.Tensor | None]:
        """The gradients of the parameters, as wide as the tensors that are changed."""
        return [
            None if parameter.grad is None else parameter.grad.to(copy.dtype)
            for parameter, copy in zip(self._parameters, self.optimized, strict=True)
        ]

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
