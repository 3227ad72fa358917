"""The terms of the loss, one value per token: clipped policy gradient, KL to a reference, entropy.

Promise: pure functions of tensors of any one shape; no masks, no averages, no state. What is averaged over what is
decided once per batch by `Algorithm.token_weights`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from heedful.algorithms.table import KlKind, check_kl_kind


class Clipped(NamedTuple):
    """The clipped surrogate, per token."""

    loss: torch.Tensor
    clip_binds: torch.Tensor
    """True where the clipped branch is the smaller one, so that the token passes no gradient."""


def clipped(
    logprobs: torch.Tensor, sampled_logprobs: torch.Tensor, advantages: torch.Tensor, low: float, high: float
) -> Clipped:
    """-min(r A, clip(r, 1 - low, 1 + high) A) with r = exp(logprobs - sampled_logprobs), per token.

    Source: PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 7), with the two sides of the clip apart as in DAPO
    (Yu et al. 2025, arXiv:2503.14476, eq. 10). Deviation: r is taken against the log-probabilities that the sampler
    recorded, not against a second pass of the learner; no third ("dual") clip for negative advantages.
    """
    ratios = (logprobs - sampled_logprobs).exp()
    free = ratios * advantages
    bounded = ratios.clamp(1 - low, 1 + high) * advantages
    return Clipped(-torch.minimum(free, bounded), bounded < free)


def kl(kind: KlKind, logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    """A penalty per sampled token whose gradient, averaged over the policy's own samples, descends a KL divergence.

    With d = logprobs - reference_logprobs:

    - `k2`: d^2 / 2. Gradient of KL(policy || reference); the value is not the divergence, only close to it when d is.
    - `k3`: exp(-d) - 1 + d. Value is unbiased for KL(policy || reference), but its gradient is that of
      KL(reference || policy).
    - `k3_straight`: the value of `k3` with the gradient of `k2`.

    The names are Schulman's (joschu.net/blog/kl-approx.html). The statements hold for tokens sampled by the current
    policy; nothing is reweighted when the samples are older. Raises ValueError for any other kind: `k1` (d itself)
    has a gradient of zero expectation and belongs in the reward.
    """
    check_kl_kind(kind)
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
