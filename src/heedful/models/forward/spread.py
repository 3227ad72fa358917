"""Reading a model whose weights are spread over several ranks: FSDP2, FSDP, DeepSpeed's ZeRO-3.

Each pass gathers one layer after the other from all ranks, so all ranks must make equally many passes. Here a rank may
make any number: a rank that is done makes empty passes until the last one is done. Beside one layer at a time only the
weights outside of the layers (embeddings, last norm, output head) are whole on a rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP1
from torch.distributed.tensor import DTensor

from heedful.models.forward.exactness import evaluating

Kind = Literal["", "FSDP2", "FSDP", "ZeRO-3"]
_READ = WeakSet[nn.Module]()
"""Models under FSDP2 that have made a pass here."""
_READER = -1
"""The number of a module that DeepSpeed does not know. It keeps the weights of a module in use whole."""


def spread_as(model: nn.Module) -> Kind:
    """How the weights of a model are spread over ranks. Empty: each rank holds all of them."""
    if any(isinstance(module, FSDPModule) for module in model.modules()):
        return "FSDP2"
    if any(isinstance(module, FSDP1) for module in model.modules()):
        return "FSDP"
    return "ZeRO-3" if any(hasattr(parameter, "ds_id") for parameter in model.parameters()) else ""


@contextmanager
def in_step(root: nn.Module, body: nn.Module) -> Iterator[None]:
    """A context in which each rank may read the model any number of times. All ranks must enter it.

    The model computes neither gradients nor dropout. `root`: the module that was wrapped. `body`: the module in it that
    gives the states, called once in each pass. A rank leaves when all are done.
    """

    def still_reading(mine: bool) -> bool:
        count = torch.tensor(int(mine), device=ids_1T.device)
        dist.all_reduce(count)
        return bool(count)

    def told(*_: Any) -> None:
        still_reading(True)

    with evaluating(cast(Any, root)), torch.no_grad(), _open(root):
        device = next(body.parameters()).device  # of whole weights: shards may lie on the CPU
        ids_1T = torch.zeros(1, 2, dtype=torch.int64, device=device)
        hook = body.register_forward_pre_hook(told)
        try:
            yield
        finally:
            hook.remove()
            while still_reading(False):
                body(input_ids=ids_1T, use_cache=False)


@contextmanager
def _open(root: nn.Module) -> Iterator[None]:
    """The weights outside of the layers are whole."""
    kind = spread_as(root)
    if kind == "FSDP2":
        whole = cast(FSDPModule, root)
        if root not in _READ:  # FSDP2 learns in its first pass which module is the root
            ids_1T = torch.zeros(1, 2, dtype=torch.int64, device=next(root.parameters()).device)
            root(input_ids=ids_1T, use_cache=False)
            _READ.add(root)
        inner = [module for module in root.modules() if isinstance(module, FSDPModule) and module is not root]
        of_layers = {id(one) for module in inner for one in module.parameters()}
        splits = any(isinstance(one, DTensor) for one in root.parameters() if id(one) not in of_layers)
        whole.reshard()  # it may be split over fewer ranks than all (`reshard_after_forward=2`)
        whole.set_reshard_after_forward(False, recurse=False)
        whole.unshard()
        try:
            yield
        finally:
            whole.set_reshard_after_forward(splits, recurse=False)
            for module in (whole, *inner):
                module.reshard()
    elif kind == "FSDP":
        with FSDP1.summon_full_params(root, recurse=False, writeback=False):
            yield
    else:
        from deepspeed.runtime.zero import GatheredParameters

        layers = (module for module in root.modules() if isinstance(module, nn.ModuleList))
        of_layers = {id(one) for module in layers for one in module.parameters()}
        outside: list[Any] = [one for one in root.parameters() if id(one) not in of_layers]
        with GatheredParameters(outside):
            for parameter in outside:
                parameter.ds_active_sub_modules.add(_READER)  # else a pass ends with splitting what it has used
            try:
                yield
            finally:
                for parameter in outside:
                    parameter.ds_active_sub_modules.discard(_READER)
