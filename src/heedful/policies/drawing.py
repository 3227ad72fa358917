"""One token per row from logits, with its log-probability and the entropy of the draw.

There are two ways. `draw_narrow` is for small vocabularies on a CPU. `draw_wide` reads each logit a few times, makes
few copies, and brings its results to the host in one transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

WIDE = 8192
"""Vocabularies of at least this size are drawn from by `draw_wide` on a CPU. Other devices always use it."""
_BLOCK = 256
"""Tokens whose probabilities are summed before one of these sums is chosen."""
_NOTHING = -200.0
"""A difference to the largest logit that stands for probability 0. It adds nothing, where 0 * -inf would be NaN."""

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
"""Constants of SplitMix64."""

Noise = Callable[[Tensor], Tensor]
"""Gumbel variables in the shape of the argument, `[B, V]`."""


class Drawn(NamedTuple):
    """One entry per row. All are NaN where the row had logits that are no numbers, except for the tokens."""

    tokens_B: Tensor
    logprobs_B: Tensor
    entropies_B: Tensor


def draw(
    logits_BV: Tensor, temperature: float, *, greedy: bool, noise: Noise | None, generator: torch.Generator
) -> Drawn:
    """A token per row at `temperature`: the likeliest if `greedy`, else by `noise` if given, else by `generator`.

    The draw of `draw_wide` and that of `draw_narrow` have one distribution, and use the generator differently.
    """
    way = draw_wide if logits_BV.shape[1] >= WIDE or logits_BV.device.type != "cpu" else draw_narrow
    return way(logits_BV, temperature, greedy=greedy, noise=noise, generator=generator)


def draw_narrow(
    logits_BV: Tensor, temperature: float, *, greedy: bool, noise: Noise | None, generator: torch.Generator
) -> Drawn:
    """See `draw`. Rows without numbers give NaN for all rows."""
    logprobs_BV = torch.log_softmax(logits_BV / temperature, dim=-1)
    if bool(logprobs_BV[:, 0].isnan().any()):  # one entry is enough: log softmax spreads a NaN over its row
        lost_B = logprobs_BV.new_full((len(logprobs_BV),), torch.nan)
        return Drawn(torch.zeros_like(lost_B, dtype=torch.long), lost_B, lost_B)
    probabilities_BV = logprobs_BV.exp()
    if greedy:
        tokens_B = logprobs_BV.argmax(-1)
    elif noise is not None:
        tokens_B = noise(logprobs_BV).add_(logprobs_BV).argmax(-1)
    else:
        tokens_B = torch.multinomial(probabilities_BV, 1, generator=generator)[:, 0]
    chosen_B = logprobs_BV.gather(1, tokens_B[:, None])[:, 0]
    # A logit of -inf has probability 0 and adds nothing, but 0 * -inf is NaN.
    entropies_B = -(probabilities_BV * logprobs_BV.clamp(min=-1e30)).sum(-1)
    return Drawn(tokens_B, chosen_B, entropies_B)


def draw_wide(
    logits_BV: Tensor, temperature: float, *, greedy: bool, noise: Noise | None, generator: torch.Generator
) -> Drawn:
    """See `draw`. Nothing here waits for the device."""
    scaled_BV = logits_BV if temperature == 1 else logits_BV / temperature
    below_BV = scaled_BV - scaled_BV.amax(-1, keepdim=True)  # 0 for the likeliest token
    weights_BV = below_BV.exp()
    logs_B = weights_BV.sum(-1).log()
    if greedy:
        tokens_B = scaled_BV.argmax(-1)
    elif noise is not None:
        tokens_B = noise(below_BV).add_(below_BV).argmax(-1)
    else:
        dtype = torch.float32 if weights_BV.device.type == "mps" else torch.float64  # mps has no float64
        uniforms_B1 = torch.rand((len(weights_BV), 1), generator=generator, device=weights_BV.device, dtype=dtype)
        tokens_B = _inverse(weights_BV, uniforms_B1)
    chosen_B = below_BV.gather(1, tokens_B[:, None])[:, 0] - logs_B
    means_B = torch.linalg.vecdot(weights_BV, below_BV.clamp_(min=_NOTHING)) / weights_BV.sum(-1)
    return Drawn(tokens_B, chosen_B, logs_B - means_B)


def _inverse(weights_BV: Tensor, uniforms_B1: Tensor) -> Tensor:
    """The token at which the cumulative sum of the weights passes this share of the whole sum.

    A block of tokens is found first, then the token within it, so that only the sums of blocks are accumulated. Sums
    are float64 where the device has it. A token of weight 0 is never found.
    """
    blocks = torch.nn.functional.pad(weights_BV, (0, -weights_BV.shape[1] % _BLOCK)).unflatten(1, (-1, _BLOCK))
    upto_BN = blocks.sum(-1).to(uniforms_B1.dtype).cumsum(-1)
    target_B1, block_B1 = _passed(upto_BN, uniforms_B1 * upto_BN[:, -1:])
    before_B1 = torch.where(block_B1 > 0, upto_BN.gather(1, (block_B1 - 1).clamp(min=0)), 0.0)
    inside_BK = blocks.take_along_dim(block_B1[:, :, None], 1)[:, 0].to(uniforms_B1.dtype).cumsum(-1)
    _, token_B1 = _passed(inside_BK, target_B1 - before_B1)
    tokens_B: Tensor = (block_B1 * _BLOCK + token_B1)[:, 0]
    return tokens_B.clamp(max=weights_BV.shape[1] - 1)  # only where the weights are NaN


def _passed(upto_BN: Tensor, target_B1: Tensor) -> tuple[Tensor, Tensor]:
    """The target, below the last sum, and the place of the first sum that is larger."""
    last_B1 = upto_BN[:, -1:]
    target_B1 = torch.minimum(target_B1, torch.nextafter(last_B1, torch.zeros_like(last_B1)))
    place_B1 = torch.searchsorted(upto_BN, target_B1, right=True).clamp(max=upto_BN.shape[1] - 1)
    return target_B1, place_B1


def gumbels(seeds_B: Sequence[int], places_B: Sequence[int], vocabulary: int, like: Tensor) -> Tensor:
    """Independent standard Gumbel variables `[B, V]`, with the dtype and device of `like`.

    The noise belongs to one turn of one conversation, independent of the rest of the batch: it is a function of the
    turn's seed, the token's position in the reply and its id. No generator with a state is used, on any device.

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
