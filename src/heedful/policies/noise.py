"""Sampling noise that belongs to one turn of one conversation, whoever else is in the batch.

Promise: the noise of a token depends on the turn's seed, the token's place in the reply and its id, and on nothing
else; it is computed from these, on any device, without a generator that moves on.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def gumbels(seeds_B: Sequence[int], places_B: Sequence[int], vocabulary: int, like: Tensor) -> Tensor:
    """Independent standard Gumbel variables `[B, V]`, of the dtype and on the device of `like`.

    `seeds_B`: of the rows, 63 bits each; `places_B`: numbers of the tokens within their replies, below 2^31. The token
    with the largest log-probability plus Gumbel variable is a draw from the distribution, and a change of the
    log-probabilities by some epsilon changes the draw with a probability of about epsilon: the place where a sum of
    probabilities passes a uniform number would move by many unlikely tokens.

    Source: the hash is that of SplitMix64 (Steele, Lea, Flood 2014), of counters in place of a state. It is written in
    wrapping signed integers, the only 64 bits that torch computes with everywhere.
    """
    counters_V = torch.arange(1, vocabulary + 1, device=like.device)
    seeds = [_signed(seed + (place << 32) * _GOLDEN) for seed, place in zip(seeds_B, places_B, strict=True)]
    bits_BV = torch.tensor(seeds, device=like.device)[:, None] + counters_V * _signed(_GOLDEN)
    bits_BV.bitwise_xor_(_shifted(bits_BV, 30)).mul_(_signed(_FIRST))
    bits_BV.bitwise_xor_(_shifted(bits_BV, 27)).mul_(_signed(_SECOND))
    bits_BV.bitwise_xor_(_shifted(bits_BV, 31))
    digits = 53 if like.dtype == torch.float64 else 32
    uniforms_BV = (_shifted(bits_BV, 64 - digits).to(like.dtype) + 0.5) * 2.0**-digits
    # Small numbers keep all digits; those next to 1 are rounded, and at 1 itself the waiting time would be infinite.
    waits_BV = uniforms_BV.clamp_(max=1 - torch.finfo(like.dtype).eps / 2).neg_().log1p_().neg_()
    return waits_BV.log_().neg_()


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Shifted right, zeros coming in from the left."""
    return (bits >> by).bitwise_and_((1 << (64 - by)) - 1)


def _signed(bits: int) -> int:
    """The signed integer that holds the lowest 64 bits."""
    bits &= (1 << 64) - 1
    return bits - (1 << 64) if bits >> 63 else bits
