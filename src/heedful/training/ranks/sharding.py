"""A model whose parameters are sharded over several ranks (FSDP2). Each layer is gathered while it is used.

Loss, gradient and step equal those of the whole model on one process, to rounding. A checkpoint holds the whole model
and can be read by any number of processes.

Parameters are split per decoder layer. Embeddings, last norm and output head are split together as one more unit.
Training needs the same number of forward and backward passes on every rank, since each pass gathers the shards of all
ranks. Sampling and measuring need different numbers of passes, because replies differ in length. During that time every
rank holds the whole weights (`whole`): as many bytes as the model has in the dtype it computes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from heedful.models.forward.token_logits import TokenLogits, token_logits
from heedful.training.ranks.world import World

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ROWS = "heedful_token_logits"


class Sharded:
    """`model`, sharded in place over the ranks of `world`.

    With `half` the shards stay float32, for the optimizer. They are gathered in bfloat16 for the computation, and
    gradients are summed in float32. A single process does the same with bfloat16 weights and float32 copies.

    If a part of the parameters is frozen (LoRA), only that part is sharded, in its own dtype. The trained part is small
    and stays whole on each rank, which sums its gradients as without shards.
    """

    def __init__(self, model: PreTrainedModel, world: World, *, half: bool = False) -> None:
        """Raises ValueError for a model without a list of decoder layers, one whose parameters differ in dtype, and a
        torch that is too old."""
        if not hasattr(FSDPModule, "reset_iter_state"):
            raise ValueError(
                f"--parallel fsdp2 needs a torch whose FSDP2 can forget forward passes (2.13 can), found "
                f"{torch.__version__}; use --parallel data, or install the torch that constraints.txt names."
            )
        layers = getattr(model.get_decoder(), "layers", None)
        if not isinstance(layers, torch.nn.ModuleList):
            raise ValueError(
                f"--parallel fsdp2 splits a model layer by layer, but {type(model).__name__} names no list of "
                "decoder layers; use --parallel data."
            )
        trained = {parameter for parameter in model.parameters() if parameter.requires_grad}
        self.frozen = len(trained) < sum(1 for _ in model.parameters())
        """Whether the shards are frozen, and the trained parameters whole."""
        whole = trained if self.frozen else set()
        dtypes = {parameter.dtype for parameter in model.parameters() if parameter not in whole}
        if len(dtypes) > 1:
            raise ValueError(
                f"--parallel fsdp2 expects parameters of one dtype, found {', '.join(map(str, dtypes))}; use "
                "--parallel data."
            )
        rows = token_logits(model)  # probed while the model is whole
        mesh = init_device_mesh(world.device.type, (world.size,))
        dtype = torch.bfloat16 if half else None
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32 if half else None)
        for layer in layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy, ignored_params=whole)
        fully_shard(cast(torch.nn.Module, model), mesh=mesh, mp_policy=policy, ignored_params=whole)
        setattr(model, _ROWS, rows)
        # The head runs on chosen positions, outside the model's own forward: this, too, must gather the shards.
        register_fsdp_forward_method(cast(torch.nn.Module, model), _ROWS)
        self.model = model
        self.half = half
        self._layers = [cast(FSDPModule, layer) for layer in layers]
        self._windows = 0
        # FSDP2 sets itself up in the first forward pass, which a rank without anything to sample might never run.
        with torch.no_grad():
            probe = torch.zeros(1, 2, dtype=torch.int64, device=world.device)
            self.token_logits(probe, torch.ones_like(probe, dtype=torch.bool))
        cast(FSDPModule, model).reset_iter_state()

    @property
    def token_logits(self) -> TokenLogits:
        """As `training.token_logits`. Must be called equally often on every rank, unless the model is `whole`."""
        return cast(TokenLogits, getattr(self.model, _ROWS))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A context in which every rank holds all weights and may use the model any number of times, without gradients.

        All ranks must enter together. Each rank may leave at its own time.
        """
        root = cast(FSDPModule, self.model)
        if self._windows == 0:
            root.set_reshard_after_forward(False)
            for module in (root, *self._layers):
                module.unshard()
        self._windows += 1
        try:
            yield
        finally:
            self._windows -= 1
            if self._windows == 0:
                # Back to shards. FSDP2 must forget the forward passes that it saw: it would plan the next backward pass
                # by their number, which differs between ranks.
                root.reset_iter_state()
                for layer in self._layers:
                    layer.set_reshard_after_forward(True, recurse=False)

    def weights(self) -> dict[str, torch.Tensor]:
        """The whole weights by name, on the CPU of rank 0, and an empty dict on other ranks. All ranks must call it."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(cast(torch.nn.Module, self.model), options=options)
        weights = {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
        return {name: tensor.to(torch.bfloat16) if self.half else tensor for name, tensor in weights.items()}


class ShardedWeights:
    """The counterpart of `MasterWeights` for a sharded model: the optimizer changes the shards themselves."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], *, half: bool) -> None:
        self.optimized: list[torch.Tensor] = list(parameters)
        self._half = half

    @property
    def copies(self) -> list[torch.Tensor]:
        """The whole float32 parameters where the model computes in bfloat16. Empty otherwise."""
        return [whole_tensor(parameter.detach()) for parameter in self.optimized] if self._half else []

    def load_copies(self, copies: Sequence[torch.Tensor]) -> None:
        """Load the copies that `copies` gave, here or on one process."""
        with torch.no_grad():
            for parameter, copy in zip(self.optimized if self._half else [], copies, strict=True):
                parameter.copy_(shard_like(copy, parameter))

    def take_gradients(self) -> None:
        """Do nothing: the optimizer uses the parameters' own gradients."""

    def give_weights(self) -> None:
        """Do nothing: the optimizer changes the parameters themselves."""


def whole_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor, gathered if it is sharded. All ranks must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
    """A whole tensor, sharded as `shard` is, if that is sharded and of the same shape."""
    if not isinstance(shard, DTensor) or tensor.shape != shard.shape:
        return tensor
    return distribute_tensor(tensor.to(shard.device), shard.device_mesh, shard.placements)


def whole_state(state: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's `state_dict` with every tensor gathered. All ranks must call it."""
    return _with_tensors(state, lambda number, tensor: whole_tensor(tensor))


def split_state(state: dict[str, Any], parameters: Sequence[torch.Tensor]) -> dict[str, Any]:
    """A state given by `whole_state`, sharded as the `parameters` that it belongs to."""
    return _with_tensors(state, lambda number, tensor: shard_like(tensor, parameters[number]))


def _with_tensors(state: dict[str, Any], change: Callable[[int, torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    changed = {
        number: {
            name: change(number, value) if isinstance(value, torch.Tensor) else value for name, value in own.items()
        }
        for number, own in state["state"].items()
    }
    return {**state, "state": changed}
