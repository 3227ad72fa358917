"""The loss of one micro-batch, term by term and token by token, as the algorithm's row of the table says.

Stateless. Per-token weights are computed before the batch is split into micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from heedful.algorithms import losses
from heedful.algorithms.table import Algorithm
from heedful.training.batch import MicroBatch


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """One value per trained token of a micro-batch, row by row. Gradients run through the three loss terms."""

    logprobs_N: torch.Tensor
    """The learner's log-probabilities now."""
    sampled_N: torch.Tensor
    """The sampler's log-probabilities."""
    policy_N: torch.Tensor
    """The surrogate loss."""
    clip_binds_N: torch.Tensor
    kl_N: torch.Tensor | None
    """The KL penalty, before its coefficient. `None` without a reference."""
    entropy_N: torch.Tensor | None
    """Exact entropy in nats. `None` if it was not requested."""
    weights_N: torch.Tensor
    """The weight of each token in the loss."""
    regularised_N: torch.Tensor | None = None
    """True where the entropy bonus and readings read the token. `None`: everywhere."""

    def loss(self, kl: float, entropy: float) -> torch.Tensor:
        """The weighted sum over tokens, with these coefficients."""
        loss_N = self.policy_N
        if kl > 0 and self.kl_N is not None:
            loss_N = loss_N + kl * self.kl_N
        if entropy > 0 and self.entropy_N is not None:
            read_N = self.entropy_N if self.regularised_N is None else self.regularised_N * self.entropy_N
            loss_N = loss_N - entropy * read_N
        return (self.weights_N * loss_N).sum()


class Scores(NamedTuple):
    """The learner's log-probabilities of the trained tokens, and its entropies if they were requested."""

    logprobs_N: torch.Tensor
    entropy_N: torch.Tensor | None


def scores_of(logits_NV: torch.Tensor, batch: MicroBatch, with_entropy: bool) -> Scores:
    """The scores of logits (over the temperature) where the trained tokens of `batch` are predicted."""
    return Scores(picked(logits_NV, batch), losses.entropy(logits_NV) if with_entropy else None)


def token_terms(
    algorithm: Algorithm,
    batch: MicroBatch,
    scores: Scores,
    *,
    reference_N: torch.Tensor | None = None,
    learner_N: torch.Tensor | None = None,
    importance_N: torch.Tensor | None = None,
) -> TokenTerms:
    """The terms of `batch`, given the learner's scores of its trained tokens.

    `reference_N`: the reference's log-probabilities. `learner_N`: the learner's own before the update, where they
    differ from the sampler's. Then ratios are taken against them, and tokens are weighed by `importance_N`. This is
    decoupled PPO (Hilton et al. 2021, arXiv:2110.00641) with the weights of `training.correction`.
    """
    logprobs_N = scores.logprobs_N
    sampled_N = at_trained(batch.logprobs_BT, batch).to(logprobs_N.dtype)
    advantages_N = at_trained(batch.advantages_BT, batch).to(logprobs_N.dtype)
    weights_N = at_trained(batch.weights_B[:, None].expand_as(batch.trained_BT), batch).to(logprobs_N.dtype)
    regularised_N = None
    if batch.regularised_B is not None:
        regularised_N = at_trained(batch.regularised_B[:, None].expand_as(batch.trained_BT), batch)
        if reference_N is not None:  # its own reference: a penalty of 0 and no gradient, however far apart they are
            reference_N = torch.where(regularised_N, reference_N.to(logprobs_N.dtype), logprobs_N.detach())
    log_ratios_N = logprobs_N - (sampled_N if learner_N is None else learner_N)
    if algorithm.ratio == "sequence":
        log_ratios_N = losses.over_sequences(log_ratios_N, rows_of_trained(batch))
    if algorithm.surrogate == "clip":
        surrogate = losses.clipped(log_ratios_N, advantages_N, algorithm.clip_low, algorithm.clip_high)
    else:
        surrogate = losses.weighted(log_ratios_N, logprobs_N, advantages_N, algorithm.clip_low, algorithm.clip_high)
    return TokenTerms(
        logprobs_N=logprobs_N,
        sampled_N=sampled_N,
        policy_N=surrogate.loss if importance_N is None else importance_N * surrogate.loss,
        clip_binds_N=surrogate.clip_binds,
        kl_N=None if reference_N is None else losses.kl(algorithm.kl_kind, logprobs_N, reference_N),
        entropy_N=scores.entropy_N,
        weights_N=weights_N,
        regularised_N=regularised_N,
    )


def at_trained(values_BT: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """The values at the trained tokens, row by row: `[B, T]` in, `[N]` out."""
    return values_BT.reshape(-1)[batch.trained_N]


def rows_of_trained(batch: MicroBatch) -> torch.Tensor:
    """The row of each trained token: `[N]`."""
    numbers_B = torch.arange(len(batch.ids_BT), device=batch.ids_BT.device)
    return at_trained(numbers_B[:, None].expand_as(batch.ids_BT), batch)


def picked(logits_NV: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """log softmax(logits) of the trained tokens."""
    picked_N = logits_NV.gather(-1, at_trained(batch.ids_BT, batch)[:, None])[:, 0]
    return picked_N - logits_NV.logsumexp(dim=-1)
