"""The optimizer step of policy and critic: AdamW under its schedule over one set of parameters.

A gradient that is not finite changes nothing. A state given by `state_dict` and loaded again continues with the same
bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import torch

from heedful.training.master_weights import MasterWeights
from heedful.training.optimizer_config import OptimizerConfig
from heedful.training.ranks.sharding import Sharded, ShardedWeights, split_state, whole_state, whole_tensor
from heedful.training.ranks.world import World


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

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, the float32 copies and the number of steps. Sharded tensors are gathered."""
        optimizer = whole_state(self._optimizer.state_dict())
        return {
            "optimizer": optimizer,
            "moments": list(optimizer["state"]),  # not of all parameters: one may have had no gradient yet
            "masters": self._weights.copies,
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state that `state_dict` gave. The settings stay those of the configuration.

        Raises ValueError for what is no state of these parameters.
        """
        saved, own = _tree_of(state), self._optimizer.state_dict()
        steps = a_count(state["steps"], "optimizer steps")
        if [group["params"] for group in saved["param_groups"]] != [group["params"] for group in own["param_groups"]]:
            raise ValueError(f"Expected the optimizer's state of {len(self._weights.optimized)} tensors, found others.")
        listed = state.get("moments", saved["state"])  # checkpoints of older versions have no list
        lost = [number for number in listed if number not in saved["state"]]
        if lost:
            raise ValueError(
                f"Expected the moments of {len(listed)} parameters, found none of parameter {lost[0]!r:.80}."
            )
        for number, moments in saved["state"].items():
            _check_moments(number, moments, self._weights.optimized)
        # Copied, because this optimizer changes its tensors in place: the caller's, and all places of an expanded one.
        copied = {
            number: {name: _copied(value) for name, value in moments.items()}
            for number, moments in saved["state"].items()
        }
        loaded = {"state": copied, "param_groups": own["param_groups"]}
        self._optimizer.load_state_dict(split_state(loaded, self._weights.optimized))
        self._weights.load_copies(state["masters"])
        self.steps = steps


def _tree_of(state: object) -> dict[str, Any]:
    """The optimizer's part of a state, if it has the form of one. Raises ValueError."""
    saved = state.get("optimizer") if isinstance(state, dict) else None
    if isinstance(saved, dict) and isinstance(saved.get("state"), dict):
        groups = saved.get("param_groups")
        if isinstance(groups, list) and all(isinstance(group, dict) for group in groups):
            return saved
    raise ValueError("Expected the optimizer's state with `state` and `param_groups` by their names, found others.")


def a_count(value: object, of: str) -> int:
    """A number of steps as a checkpoint gave it. Raises ValueError for what is none."""
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError(f"Expected the number of {of}, found {value!r:.80}.")
    return value


def _check_moments(number: object, moments: object, parameters: Sequence[torch.Tensor]) -> None:
    """Raises ValueError unless these are AdamW's moments of the parameter with this number."""
    if type(number) is not int or not 0 <= number < len(parameters):
        raise ValueError(f"Expected the number of a parameter below {len(parameters)}, found {number!r:.80}.")
    if not isinstance(moments, dict):
        raise ValueError(f"Expected the moments of parameter {number} by their names, found {_kind(moments)}.")
    shape = parameters[number].shape
    for name, wanted in (("step", torch.Size()), ("exp_avg", shape), ("exp_avg_sq", shape)):
        found = moments[name]
        if not isinstance(found, torch.Tensor) or found.layout is not torch.strided or not found.is_floating_point():
            raise ValueError(f"Expected {name} of parameter {number} as a tensor of floats, found {_kind(found)}.")
        if found.shape != wanted:
            raise ValueError(f"Expected {name} of parameter {number} in {tuple(wanted)}, found {tuple(found.shape)}.")
        if not bool(found.isfinite().all()) or (name != "exp_avg" and bool((found < 0).any())):
            raise ValueError(f"Expected {name} of parameter {number} as possible numbers, found others.")


def _copied(value: object) -> object:
    """A copy in memory of its own, whose places are apart."""
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return value.clone(memory_format=torch.contiguous_format)
    return deepcopy(value)


def _kind(value: object) -> str:
    return f"one of {value.dtype} ({value.layout})" if isinstance(value, torch.Tensor) else f"{value!r:.80}"
