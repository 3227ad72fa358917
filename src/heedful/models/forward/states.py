"""What a model keeps of the tokens that it has read: keys and values, windows of them, recurrent states.

No other file knows the classes of transformers' caches. Which use of them is exact for a model is found by a probe.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from heedful.models.vision.positions import carry_shift, joined_shifts


class _Takes(NamedTuple):
    """How a model is called with a cache."""

    cache: str
    """The name of the argument."""
    positions: bool
    keys_alone: bool
    """Whether every layer keeps keys and values of single tokens, and nothing else."""


_TAKES: WeakKeyDictionary[nn.Module, _Takes] = WeakKeyDictionary()


def keeps_keys_alone(body: nn.Module) -> bool:
    """Whether all that `body` keeps are keys and values, one pair for each token, layer and head."""
    return _takes(body).keys_alone


def empty_cache(body: nn.Module) -> Cache | None:
    """A cache for `read` without any token. `None`: the model makes its own.

    A model that keeps keys alone gets a cache that drops none of them. The one that transformers makes for it follows
    `sliding_window` in the config, also where no layer uses it.
    """
    return DynamicCache() if _takes(body).keys_alone else None


def read(
    body: nn.Module, ids_BT: Tensor, cache: Cache | None, at: int = 0, mask_BT: Tensor | None = None, **more: Any
) -> tuple[Tensor, Cache]:
    """Read tokens behind a cache, and write them to it: the last hidden states `[B, T, D]`, and the cache.

    `body`: gives states. If it is a whole model, it gives logits. `at`: the number of tokens in the cache. `mask_BT`:
    True at each token of the cache and of `ids_BT`, where rows differ in length. Positions are passed always: some
    models count from 0 in each call. A model that keeps nothing raises LookupError.
    """
    takes = _takes(body)
    if takes.positions:
        if mask_BT is None:
            more["position_ids"] = torch.arange(at, at + ids_BT.shape[1], device=ids_BT.device).expand(len(ids_BT), -1)
        else:
            more["position_ids"] = (mask_BT.cumsum(1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
    if mask_BT is not None:
        more["attention_mask"] = mask_BT
    output = body(input_ids=ids_BT, use_cache=True, return_dict=True, **{takes.cache: cache}, **more)
    states_BTD = output.logits if "logits" in output else output.last_hidden_state
    kept = cast(Any, output).get(takes.cache)
    if kept is None:
        raise LookupError("it keeps no state of what it has read")
    return states_BTD, kept


def fork(cache: Cache, rows: Tensor) -> Cache:
    """A copy of these rows of a cache. Rows may repeat. Reading behind the copy leaves the cache as it is."""
    known = all(type(layer).__module__ == Cache.__module__ for layer in cache.layers)
    new = copy.copy(cache) if known else copy.deepcopy(cache)
    if known:
        new.layers = [copy.copy(layer) for layer in cache.layers]
        for layer in new.layers:
            for name, value in vars(layer).items():
                if isinstance(value, dict | list):
                    setattr(layer, name, copy.copy(value))
    new.reorder_cache(cast(torch.LongTensor, rows))
    carry_shift(new, joined_shifts([cache], [rows]))
    return new


@torch.no_grad()
def _takes(body: nn.Module) -> _Takes:
    """Found by reading one token, once per model."""
    if body not in _TAKES:
        taken = inspect.signature(body.forward).parameters
        name = "cache_params" if "cache_params" in taken else "past_key_values"
        ids_11 = torch.zeros(1, 1, dtype=torch.long, device=next(body.parameters()).device)
        kept = cast(Any, body(input_ids=ids_11, use_cache=True, return_dict=True)).get(name)
        layers = list(getattr(kept, "layers", ()))
        keys_alone = bool(layers) and all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)
        _TAKES[body] = _Takes(name, "position_ids" in taken, keys_alone)
    return _TAKES[body]
