"""The terms of the loss, one value per token: policy gradient, KL to a reference, entropy, value.

Pure functions of tensors of any one shape, without masks, averages or state. `Algorithm.token_weights` decides the
averages once per batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from heedful.algorithms.table import KlKind


class Surrogate(NamedTuple):
    """The policy term, per token."""

    loss: torch.Tensor
    clip_binds: torch.Tensor
    """True where the clip changed the gradient that the token passes."""


def clipped(log_ratios: torch.Tensor, advantages: torch.Tensor, low: float, high: float) -> Surrogate:
    """-min(r A, clip(r, 1 - low, 1 + high) A) with r = exp(log_ratios), per token.

    Source: PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 7), with the two sides of the clip apart as in DAPO
    (Yu et al. 2025, arXiv:2503.14476, eq. 10). Deviation: no third ("dual") clip for negative advantages. Where the
    clipped branch is the smaller one, the token passes no gradient.
    """
    ratios = log_ratios.exp()
    free = ratios * advantages
    bounded = ratios.clamp(1 - low, 1 + high) * advantages
    return Surrogate(-torch.minimum(free, bounded), bounded < free)


def weighted(
    log_ratios: torch.Tensor, logprobs: torch.Tensor, advantages: torch.Tensor, low: float, high: float
) -> Surrogate:
    """-clip(r, 1 - low, 1 + high) A logprobs with the clipped r = exp(log_ratios) held constant, per token.

    Source: CISPO (Chen et al. 2025, arXiv:2506.13585, eq. 4). Every token passes a gradient, a clipped one less.
    """
    ratios = log_ratios.detach().exp()
    bounded = ratios.clamp(1 - low, 1 + high)
    return Surrogate(-bounded * advantages * logprobs, (bounded != ratios) & (advantages != 0))


def over_sequences(log_ratios_N: torch.Tensor, sequence_N: torch.Tensor) -> torch.Tensor:
    """Each token's log-ratio replaced by the mean over its sequence: `[N]` in, `[N]` out.

    `sequence_N` numbers the sequences. The ratio becomes the geometric mean over the sequence's tokens, and the
    gradient reaches all of them: GSPO (Zheng et al. 2025, arXiv:2507.18071, eq. 7).
    """
    if not len(sequence_N):
        return log_ratios_N
    size = int(sequence_N.max()) + 1
    sums = log_ratios_N.new_zeros(size).index_add(0, sequence_N, log_ratios_N)
    counts = torch.bincount(sequence_N, minlength=size).to(log_ratios_N.dtype)
    return (sums / counts.clamp(min=1))[sequence_N]


def kl(kind: KlKind, logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    """A penalty per sampled token whose gradient, averaged over the policy's own samples, descends a KL divergence.

    With d = logprobs - reference_logprobs:

    - `k2`: d^2 / 2. Gradient of KL(policy || reference). The value is close to the divergence only where d is small.
    - `k3`: exp(-d) - 1 + d. Value is unbiased for KL(policy || reference), but its gradient is that of
      KL(reference || policy).
    - `k3_straight`: the value of `k3` with the gradient of `k2`.

    The names are Schulman's (joschu.net/blog/kl-approx.html). The statements hold for tokens sampled by the current
    policy. Older samples are not reweighted. `k1` (d itself) is no choice: its gradient has the expectation zero, so it
    belongs in the reward.
    """
    difference = logprobs - reference_logprobs
    k2 = difference.square() / 2
    if kind == "k2":
        return k2
    k3 = torch.expm1(-difference) + difference
    return k3 if kind == "k3" else k2 + (k3 - k2).detach()


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Exact entropy of softmax(logits) over the last dimension, in nats: shape `[..., V]` in, `[...]` out.

    An impossible token (logit -inf) adds nothing and passes no gradient.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    return -(logprobs.exp() * logprobs.clamp(min=torch.finfo(logprobs.dtype).min)).sum(dim=-1)


class ValueTerm(NamedTuple):
    """The critic's term, per token."""

    loss: torch.Tensor
    clip_binds: torch.Tensor
    """True where the clipped error is the larger one, so that the token passes no gradient."""


def value(values: torch.Tensor, values_before: torch.Tensor, returns: torch.Tensor, clip: float | None) -> ValueTerm:
    """Half the squared error of `values`, per token. With a `clip`: the larger of this error and the error of the value
    clamped to within `clip` of `values_before`.

    Source: PPO's published code (Schulman et al. 2017, arXiv:1707.06347; the clip is not in the paper).
    """
    free = (values - returns).square() / 2
    if clip is None:
        return ValueTerm(free, torch.zeros_like(free, dtype=torch.bool))
    near = values_before + (values - values_before).clamp(-clip, clip)
    bounded = (near - returns).square() / 2
    return ValueTerm(torch.maximum(free, bounded), bounded > free)
