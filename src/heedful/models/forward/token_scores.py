"""Log-probabilities and entropies of trained tokens for wide vocabularies, in blocks and with few copies of logits.

The logits of one position take 192 kB for 49,152 tokens, and 1 MB for 262,144. Plain operations of torch hold four to
eight such tensors for all positions of a micro-batch. Here a block of positions holds two. Where there are several
blocks, each keeps no logits for the backward pass, and computes them a second time.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from heedful.models.forward.token_logits import Head, Over

WIDE = 8192
"""Vocabularies of at least this size are scored here. Smaller ones keep the plain operations and their rounding."""
BLOCK_BYTES = 2**26
"""Memory of one tensor of a block's logits."""
_NOTHING = -200.0
"""A log-probability that stands for probability 0. It adds nothing, where 0 * -inf would be NaN."""


def block_of(vocabulary: int) -> int:
    """The positions of one block: those whose float32 logits take `BLOCK_BYTES`, at least one."""
    return max(1, BLOCK_BYTES // (4 * vocabulary))


def scores_over(targets_N: Tensor, temperature: float, with_entropy: bool, block: int) -> Over:
    """What to compute from hidden states instead of logits: `[N, 1]` log-probabilities, or `[N, 2]` with entropies.

    `targets_N`: the trained tokens, in the order of the hidden states. `block`: positions (`block_of`). The values are
    those of `softmax(logits / temperature)`, in float32 or wider.
    """

    def over(states_ND: Tensor, head: Head) -> Tensor:
        def part(states_BD: Tensor, targets_B: Tensor) -> Tensor:
            logits_BV = head(states_BD)
            wide_BV = logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32))
            return cast(Tensor, _Scores.apply(wide_BV, targets_B, temperature, with_entropy))

        if len(states_ND) <= block:
            return part(states_ND, targets_N)
        pairs = zip(states_ND.split(block), targets_N.split(block), strict=True)
        if not torch.is_grad_enabled():
            return torch.cat([part(*pair) for pair in pairs])
        # No random number is drawn, so no generator has to be restored.
        parts = [checkpoint(part, *pair, use_reentrant=False, preserve_rng_state=False) for pair in pairs]
        return torch.cat(cast(list[Tensor], parts))

    return over


class _Scores(torch.autograd.Function):
    """Log-probability (and entropy) of each row, with the gradient of both in one tensor of the logits' size."""

    @staticmethod
    def forward(ctx: Any, logits_BV: Tensor, targets_B: Tensor, temperature: float, with_entropy: bool) -> Tensor:
        scaled_BV = logits_BV if temperature == 1 else logits_BV / temperature
        totals_B = scaled_BV.logsumexp(-1)
        columns = [scaled_BV.gather(-1, targets_B[:, None])[:, 0] - totals_B]
        if with_entropy:
            logprobs_BV = scaled_BV - totals_B[:, None]
            columns.append(-torch.linalg.vecdot(logprobs_BV.exp(), logprobs_BV.clamp_(min=_NOTHING)))
        ctx.save_for_backward(scaled_BV, targets_B, totals_B, *columns[1:])
        ctx.temperature = temperature
        return torch.stack(columns, dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BK: Tensor) -> tuple[Tensor, None, None, None]:
        scaled_BV, targets_B, totals_B, *entropies = ctx.saved_tensors
        of_logprob_B1 = gradient_BK[:, :1]
        logprobs_BV = scaled_BV - totals_B[:, None]
        # With log-probability l_t, entropy H and probabilities p: d l_t / d x_j = [j = t] - p_j, and
        # d H / d x_j = -p_j (log p_j + H).
        if entropies:
            found_BV = logprobs_BV.exp()
            pulls_BV = logprobs_BV.clamp_(min=_NOTHING).add_(entropies[0][:, None]).mul_(gradient_BK[:, 1:])
            found_BV.mul_(pulls_BV.add_(of_logprob_B1)).neg_()
        else:
            found_BV = logprobs_BV.exp_().mul_(-of_logprob_B1)
        found_BV.scatter_add_(1, targets_B[:, None], of_logprob_B1)
        return (found_BV if ctx.temperature == 1 else found_BV.div_(ctx.temperature)), None, None, None
