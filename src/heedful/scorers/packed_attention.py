"""Attention of packed thoughts: the shared prompt and each thought's own tokens, combined exactly.

The softmax over prompt and own tokens equals that of each pair alone. Both parts return their log-sum-exp, and the
weight of the prompt's part is the sigmoid of the difference. This identity is used in online softmax (Milakov and
Gimelshein 2018, arXiv:1805.02867) and in blockwise attention (Dao et al. 2022, arXiv:2205.14135).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache

from heedful.models.vision.positions import shift_of
from heedful.scorers.packs import Bucket, Pack

NAME = "heedful_packed"
_HARMLESS = {"position_ids", "cache_position", "use_cache", "is_causal", "output_attentions", "dropout"}
"""Arguments that models pass to their attention without effect on its result."""
_SCORES = 2**22
"""Maximum attention scores held at a time if no fused kernel returns its log-sum-exp."""
_FUSED_KEYS = 64
"""With fewer keys the plain products are as fast as the fused kernel (15 keys .28 against .39 ms, 100: 2.3, 1.8)."""


class PackedAttention:
    """The data of one pass for every layer's attention: P prompts, and a pack after each.

    It is no dataclass on purpose: FSDP2 with mixed precision hands each layer a copy of those, with other tensors.
    """

    def __init__(
        self,
        prefixes: Sequence[tuple[torch.Tensor, torch.Tensor]],
        groups: Sequence[_Group],
        shift_P: torch.Tensor | None = None,
        lengths_P: torch.Tensor | None = None,
    ) -> None:
        self.prefixes = prefixes
        """Per layer the prompts' keys and values, P x H x T x D, read only."""
        self.groups = groups
        self.shift_P = shift_P
        """What the positions after each prompt differ by from the number of its ids (`models.vision.positions`)."""
        self.lengths_P = lengths_P
        """The tokens of each prompt, where they are padded on the right to those of the longest."""
        self.mask_P11T: torch.Tensor | None = None
        """0 at a prompt's tokens, -inf at its padding."""
        if lengths_P is not None:
            keys = prefixes[0][0]
            padding_PT = torch.arange(keys.shape[2], device=keys.device) >= lengths_P[:, None]
            self.mask_P11T = torch.zeros(padding_PT.shape, dtype=keys.dtype, device=keys.device).masked_fill_(
                padding_PT, -torch.inf
            )[:, None, None]
        self.asked_for: set[str] = set()
        """Features that layers requested and this attention lacks. They are collected to refuse the model."""
        self.layers: set[int] = set()
        """The layers that used this attention."""

    @classmethod
    def of(
        cls, cache: Cache, part: slice, groups: Sequence[_Group], lengths_P: torch.Tensor | None = None
    ) -> PackedAttention:
        layers = cast(list[Any], cache.layers)
        shift_N = shift_of(cache)
        shift_P = None if shift_N is None else shift_N[part]
        return cls([(layer.keys[part], layer.values[part]) for layer in layers], groups, shift_P, lengths_P)


@dataclass(frozen=True, slots=True)
class _Group:
    """A bucket as tensors. `queries`, `keys`, `real` are None if the bucket is the whole pack in order, unpadded."""

    size: int
    queries: torch.Tensor | None
    keys: torch.Tensor | None
    real: torch.Tensor | None
    """Positions of the queries that are not padding, among all queries of the bucket."""
    places: torch.Tensor | None
    """Their positions in the pack."""
    mask_BQK: torch.Tensor | None
    """0 if a query attends to a key, else -inf. None: query q attends to the keys up to q."""


def groups_of(pack: Pack, prompts: int, model: PreTrainedModel) -> list[_Group]:
    """The buckets of a pack for passes after `prompts` prompts."""
    whole = np.arange(len(pack.ids_R))
    return [_group(bucket, whole, prompts, model) for bucket in pack.buckets]


def _group(bucket: Bucket, whole_R: np.ndarray, prompts: int, model: PreTrainedModel) -> _Group:
    size, device = len(bucket.queries_BQ), model.device
    mask_BQK = None
    if bucket.starts_B.any():
        queries, keys = bucket.queries_BQ.shape[1], bucket.keys_BK.shape[1]
        last_BQ1 = bucket.starts_B[:, None, None] + np.arange(queries)[:, None]
        mask = torch.from_numpy(np.where(np.arange(keys) <= last_BQ1, 0.0, -np.inf))
        mask_BQK = mask.to(device, model.dtype).repeat(prompts, 1, 1)[:, None]
    elif bucket.real_BQ.all() and np.array_equal(bucket.queries_BQ.ravel(), whole_R):
        return _Group(size, None, None, None, None, None)
    flat = (bucket.queries_BQ.ravel(), bucket.keys_BK.ravel(), np.flatnonzero(bucket.real_BQ))
    places = bucket.queries_BQ[bucket.real_BQ]
    queries_t, keys_t, real_t, places_t = (torch.from_numpy(array).to(device) for array in (*flat, places))
    return _Group(size, queries_t, keys_t, real_t, places_t, mask_BQK)


@contextmanager
def packed_attention(model: PreTrainedModel) -> Iterator[None]:
    """Replace the decoder's attention with `attend_packed`. The forward call must pass `packed=...`."""
    decoder = model.get_decoder()
    configs = {id(module.config): module.config for module in decoder.modules() if hasattr(module, "config")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    for config, _ in before:
        config._attn_implementation = NAME
    try:
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation = implementation


def attend_packed(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    packed: PackedAttention | None = None,
    **asked: Any,
) -> tuple[torch.Tensor, None]:
    """The attention of one layer, as transformers calls it: query P x Hq x T x D, key and value P x Hkv x T x D.

    Heads that share a key are folded into the queries of the prompt's part, so that no prompt is copied.
    """
    if packed is None:
        # A layer that does not pass its arguments on is missing in `layers`, so the probe refuses the model.
        return query.transpose(1, 2).contiguous(), None
    wishes = ((name, wish) for name, wish in asked.items() if name not in _HARMLESS)
    packed.asked_for.update(name for name, wish in wishes if torch.is_tensor(wish) or wish not in (None, False))
    if attention_mask is not None:
        packed.asked_for.add("attention_mask")
    layer = cast(int, module.layer_idx)
    packed.layers.add(layer)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    own_PTHD, own_PTH = _own(query, key, value, packed.groups, scale)
    prompt_PTHD, prompt_PTH = _prompt(query, *packed.prefixes[layer], scale, packed.mask_P11T)
    weight_PTH = torch.sigmoid(prompt_PTH - own_PTH).to(own_PTHD.dtype)
    return torch.lerp(own_PTHD, prompt_PTHD, weight_PTH[..., None]), None


AttentionInterface.register(NAME, attend_packed)


def _prompt(
    query: torch.Tensor,
    keys_PHTD: torch.Tensor,
    values_PHTD: torch.Tensor,
    scale: float,
    mask_P11T: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of all queries to the prompt: the values P x T x H x D, the log-sum-exp P x T x H."""
    prompts, heads, tokens, _ = query.shape
    kept = keys_PHTD.shape[1]
    folded = query.reshape(prompts, kept, heads // kept * tokens, -1)
    mask = None if mask_P11T is None else mask_P11T.to(query.dtype)
    out, total = _attend(folded, keys_PHTD, values_PHTD, scale, mask=mask)
    shape = (prompts, heads, tokens)
    return out.reshape(*shape, -1).transpose(1, 2), total.reshape(shape).transpose(1, 2)


def _own(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, groups: Sequence[_Group], scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of each thought's queries to its own tokens, shaped as in `_prompt`."""
    prompts, heads, tokens, width = query.shape
    repeats = heads // key.shape[1]
    flat = [states.transpose(1, 2) for states in (query, key, value)]
    if len(groups) == 1 and groups[0].queries is None:
        out, total = _attend_group(flat, groups[0], prompts, repeats, scale)
        return out.reshape(prompts, tokens, heads, width), total.reshape(prompts, tokens, heads)
    out_PTHD = query.new_empty(prompts, tokens, heads, width)
    total_PTH = query.new_empty(prompts, tokens, heads, dtype=torch.promote_types(query.dtype, torch.float32))
    for group in groups:
        indices = cast(Any, (group.queries, group.keys, group.keys))
        chosen = [states.index_select(1, index) for states, index in zip(flat, indices, strict=True)]
        out, total = _attend_group(chosen, group, prompts, repeats, scale)
        places, real = cast(Any, (group.places, group.real))
        out_PTHD[:, places] = out.reshape(prompts, -1, heads, width)[:, real]
        total_PTH[:, places] = total.reshape(prompts, -1, heads)[:, real]
    return out_PTHD, total_PTH


def _attend_group(
    flat: Sequence[torch.Tensor], group: _Group, prompts: int, repeats: int, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    query, key, value = (s.reshape(prompts * group.size, -1, *s.shape[2:]).transpose(1, 2) for s in flat)
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    # The model may compute in another dtype than that of its parameters.
    mask = None if group.mask_BQK is None else group.mask_BQK.to(query.dtype)
    out, total = _attend(query, key, value, scale, causal=group.mask_BQK is None, mask=mask)
    return out.transpose(1, 2), total.transpose(1, 2)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    *,
    causal: bool = False,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale query key') value and the log-sum-exp of its rows, all B x H x T (x D).

    On a CPU the kernel of torch's own attention returns both. Elsewhere, and for few keys, plain products are used.
    """
    fused = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    if fused is not None and query.device.type == "cpu" and key.shape[2] >= _FUSED_KEYS:
        return cast(
            tuple[torch.Tensor, torch.Tensor],
            fused(query, key, value, 0.0, causal, attn_mask=mask, scale=scale),
        )
    step = max(1, _SCORES // max(1, query.shape[0] * query.shape[1] * key.shape[2]))
    outs, totals = [], []
    wide = torch.promote_types(query.dtype, torch.float32)
    for start in range(0, query.shape[2], step):
        scores = torch.matmul(query[:, :, start : start + step] * scale, key.transpose(2, 3)).to(wide)
        if causal:
            last = torch.arange(start, start + scores.shape[2], device=query.device)[:, None]
            scores = scores.masked_fill_(torch.arange(key.shape[2], device=query.device) > last, -torch.inf)
        if mask is not None:
            scores += mask if mask.shape[2] == 1 else mask[:, :, start : start + step]
        largest = scores.amax(dim=-1, keepdim=True)
        sums = scores.sub_(largest).exp_().sum(dim=-1, keepdim=True)
        outs.append(torch.matmul(scores.to(value.dtype), value).div_(sums))
        totals.append(sums.log_().add_(largest)[..., 0])
    return (outs[0], totals[0]) if len(outs) == 1 else (torch.cat(outs, dim=2), torch.cat(totals, dim=2))
