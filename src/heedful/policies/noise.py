"""Sampling noise that belongs to one turn of one conversation, independent of the rest of the batch.

The noise of a token is a function of the turn's seed, the token's position in the reply and its id. No generator with
a state is used, on any device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def gumbels(seeds_B: Sequence[int], places_B: Sequence[int], vocabulary: int, like: Tensor) -> Tensor:
    """Independent standard Gumbel variables `[B, V]`, with the dtype and device of `like`.

    `seeds_B`: one seed of 63 bits per row. `places_B`: the position of each row's token in its reply, below 2^31. The
    token with the largest sum of log-probability and Gumbel variable is a draw from the distribution. If
    log-probabilities change by epsilon, the draw changes with a probability of about epsilon. Inverting the cumulative
    distribution would be less stable, because rounding errors add up over many unlikely tokens.

    Source: the hash of SplitMix64 (Steele, Lea, Flood 2014). Deviation: it hashes counters, where the paper advances a
    state. It is written in wrapping signed integers, the only 64-bit integers that torch supports on every device.
    """
    counters_V = torch.arange(1, vocabulary + 1, device=like.device)
    seeds = [_signed(seed + (place << 32) * _GOLDEN) for seed, place in zip(seeds_B, places_B, strict=True)]
    bits_BV = torch.tensor(seeds, device=like.device)[:, None] + counters_V * _signed(_GOLDEN)
    bits_BV.bitwise_xor_(_shifted(bits_BV, 30)).mul_(_signed(_FIRST))
    bits_BV.bitwise_xor_(_shifted(bits_BV, 27)).mul_(_signed(_SECOND))
    bits_BV.bitwise_xor_(_shifted(bits_BV, 31))
    digits = 53 if like.dtype == torch.float64 else 32
    uniforms_BV = (_shifted(bits_BV, 64 - digits).to(like.dtype) + 0.5) * 2.0**-digits
    # Uniforms near 0 keep all digits. Those near 1 are rounded, and at 1 the result would be infinite.
    waits_BV = uniforms_BV.clamp_(max=1 - torch.finfo(like.dtype).eps / 2).neg_().log1p_().neg_()
    return waits_BV.log_().neg_()


def _shifted(bits: Tensor, by: int) -> Tensor:
    """The bits shifted right, filled with zeros from the left."""
    return (bits >> by).bitwise_and_((1 << (64 - by)) - 1)


def _signed(bits: int) -> int:
    """The signed integer that holds the lowest 64 bits."""
    bits &= (1 << 64) - 1
    return bits - (1 << 64) if bits >> 63 else bits
