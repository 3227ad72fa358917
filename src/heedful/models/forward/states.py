"""What a model keeps of the tokens that it has read: keys and values, windows of them, recurrent states.

No other file knows the classes of transformers' caches. Which use of them is exact for a model is found by a probe.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from heedful.models.forward.exactness import Unsupported, states_in
from heedful.models.vision.positions import carry_shift, joined_shifts, shift_of


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
    models count from 0 in each call. A model that keeps nothing raises `Unsupported`.
    """
    takes = _takes(body)
    if takes.positions:
        if mask_BT is None:
            more["position_ids"] = torch.arange(at, at + ids_BT.shape[1], device=ids_BT.device).expand(len(ids_BT), -1)
        else:
            more["position_ids"] = (mask_BT.cumsum(1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
    if mask_BT is not None and any(hasattr(layer, "keys") for layer in getattr(cache, "layers", ())):
        more["attention_mask"] = mask_BT  # recurrent layers alone would take it for one of the new tokens
    output = body(input_ids=ids_BT, use_cache=True, return_dict=True, **{takes.cache: cache}, **more)
    kept = cast(Any, output).get(takes.cache)
    if kept is None:
        raise Unsupported("it keeps no state of what it has read")
    return states_in(output), kept


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


def shared(cache: Cache, prompts: range, each: int) -> Cache:
    """A cache for `each` rows behind every prompt of a range. Reading behind it once leaves `cache` as it is.

    Layers that keep the keys of all tokens copy none of them: they stand before a row's own only in the attention.
    """
    layers, part = cast(list[Any], cache.layers), slice(prompts.start, prompts.stop)
    forked = copy.copy(cache)
    keeps_all = [type(layer) is DynamicLayer for layer in layers]
    forked.layers = [layer for layer, whole in zip(layers, keeps_all, strict=True) if not whole]
    forked = fork(forked, torch.tensor(prompts).repeat_interleave(each))
    others = iter(forked.layers)
    forked.layers = [
        _Prefix(layer.keys[part], layer.values[part]) if whole else next(others)
        for layer, whole in zip(layers, keeps_all, strict=True)
    ]
    return forked


class _Prefix(DynamicLayer):
    """One layer's keys and values of N prompts, shared by N x B rows and never written."""

    def __init__(self, keys_NHTD: Tensor, values_NHTD: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys_NHTD, values_NHTD, True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return _continued(cast(Any, self.keys), key_states), _continued(cast(Any, self.values), value_states)


def _continued(prefix_NHTD: Tensor, states_BHTD: Tensor) -> Tensor:
    """Each row's states after those of its prompt. Rows are ordered prompt by prompt."""
    shape = (len(prefix_NHTD), len(states_BHTD) // len(prefix_NHTD))
    shared = prefix_NHTD[:, None].expand(-1, shape[1], -1, -1, -1)
    return torch.cat([shared, states_BHTD.unflatten(0, shape)], dim=-2).flatten(0, 1)


@torch.no_grad()
def _takes(body: nn.Module) -> _Takes:
    """Found by reading one token, once per model."""
    if body not in _TAKES:
        taken = inspect.signature(type(body).forward).parameters  # one of the object itself may be a wrapper
        name = "cache_params" if "cache_params" in taken else "past_key_values"
        ids_11 = torch.zeros(1, 1, dtype=torch.long, device=next(body.parameters()).device)
        kept = cast(Any, body(input_ids=ids_11, use_cache=True, return_dict=True)).get(name)
        layers = list(getattr(kept, "layers", ()))
        keys_alone = bool(layers) and all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)
        _TAKES[body] = _Takes(name, "position_ids" in taken, keys_alone)
    return _TAKES[body]


def rows_can_be_joined(cache: Cache) -> bool:
    """Whether `padded` takes rows of this cache: keys and values of all tokens, and no shift of positions."""
    layers = getattr(cache, "layers", ())
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers) and shift_of(cache) is None


def padded(rows: Sequence[tuple[Cache, int, int]]) -> Cache:
    """A copy of rows of caches, as one cache. Each row: its cache, its number in it, and its tokens.

    Rows are padded on the right with zeros, to the tokens of the longest.
    """
    longest = max(tokens for _, _, tokens in rows)
    new = DynamicCache()
    for number in range(len(rows[0][0].layers)):
        layers = [(cast(Any, cache.layers[number]), row, tokens) for cache, row, tokens in rows]
        layer = DynamicLayer()
        layer.keys, layer.values = (
            torch.stack(
                [pad(getattr(one, name)[row, :, :tokens], (0, 0, 0, longest - tokens)) for one, row, tokens in layers]
            )
            for name in ("keys", "values")
        )
        layer.is_initialized = True
        new.layers.append(layer)
    return new


_COLUMNS = ("keys", "values", "indexer_keys", "idx_keys")
"""Tensors of a layer with one column for each token, `[B, .., T, D]`."""


def stack(caches: Sequence[Cache], rows: Sequence[Tensor], width: int) -> Cache:
    """A copy of these rows of the first cache, then of the second, and so on, as one cache.

    Columns stand at the right, `width` of them where a layer keeps all. Unused ones on the left are zeros, and a mask
    has to hide them. No row may have an unused column between its tokens.
    """

    def joined(values: Sequence[Any], columns: int = 0) -> Any:
        if not isinstance(values[0], Tensor) or values[0].dim() < 2:
            return values[0]
        parts = [value.index_select(0, rows_B) for value, rows_B in zip(values, rows, strict=True)]
        if columns:
            parts = [pad(part[..., -columns:, :], (0, 0, max(0, columns - part.shape[-2]), 0)) for part in parts]
        return torch.cat(parts)

    new = copy.copy(caches[0])
    new.layers = []
    for layers in cast(Any, zip(*(cache.layers for cache in caches), strict=True)):
        layer, windowed = copy.copy(layers[0]), hasattr(layers[0], "cumulative_length")
        columns = min(width, layer.sliding_window - 1) if windowed else width  # those before a window are dropped
        for name, value in vars(layer).items():
            values = [getattr(one, name) for one in layers]
            if name == "indexer_position_ids" and value is not None:  # [3, B, T]
                setattr(layer, name, joined([one.permute(1, 2, 0) for one in values], columns).permute(2, 0, 1))
            elif isinstance(value, dict):
                setattr(layer, name, {key: joined([one[key] for one in values]) for key in value})
            else:
                setattr(layer, name, joined(values, columns if name in _COLUMNS else 0))
        if windowed:
            layer.cumulative_length = width
        new.layers.append(layer)
    return new
