"""The loss of a batch split into terms, and the pull of each term on the scores of every trained token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from heedful.algorithms.table import Algorithm
from heedful.training.batch import MicroBatch
from heedful.training.objective import Scores, TokenTerms, token_terms

CLIP, IMPORTANCE, KL, ENTROPY = "clip", "importance", "kl", "entropy"
_NO_BOUND = 1e30
"""Far above every ratio."""


class Pull(NamedTuple):
    """The derivative of one term of the loss by the scores of each trained token, `[N]`."""

    logprobs_N: torch.Tensor
    entropy_N: torch.Tensor | None = None

    def along(self, logprobs_N: torch.Tensor, entropy_N: torch.Tensor | None) -> torch.Tensor:
        """The sum of the scores, each times its pull; or each token's own part where slopes are given, `[N]`."""
        found_N = self.logprobs_N * logprobs_N
        return found_N if self.entropy_N is None or entropy_N is None else found_N + self.entropy_N * entropy_N

    @property
    def silent(self) -> bool:
        return not (bool(self.logprobs_N.any()) or (self.entropy_N is not None and bool(self.entropy_N.any())))


@dataclass(frozen=True, slots=True)
class Weighing:
    """How the terms are weighed in the loss."""

    kl: float
    entropy: float
    scale: float = 1.0


def pulls(
    algorithm: Algorithm,
    weighing: Weighing,
    batch: MicroBatch,
    scores: Scores,
    advantages: Mapping[str, torch.Tensor],
    *,
    reference_N: torch.Tensor | None = None,
    learner_N: torch.Tensor | None = None,
    importance_N: torch.Tensor | None = None,
) -> dict[str, Pull]:
    """Term -> its pull on each trained token of `batch`. All terms together are the loss that the learner descends.

    `advantages`: part of the reward -> its advantage of each trained token, `[N]`. Its term is the surrogate without
    clip and without importance weights, which is linear in the advantages. `importance`: what the importance weights
    add to that. `clip`: what the clip changes in it. The other arguments are those of `token_terms`.
    """
    logprobs_N = scores.logprobs_N.detach().requires_grad_()
    entropy_N = None if scores.entropy_N is None else scores.entropy_N.detach()
    leaves = Scores(logprobs_N, entropy_N)
    free = replace(algorithm, clip_low=1.0, clip_high=_NO_BOUND)

    def terms(row: Algorithm, of: MicroBatch) -> TokenTerms:
        return token_terms(row, of, leaves, reference_N=reference_N, learner_N=learner_N)

    def pull(loss_N: torch.Tensor) -> torch.Tensor:
        total = weighing.scale * (weights_N * loss_N).sum()
        return torch.autograd.grad(total, logprobs_N, retain_graph=True)[0]

    as_it_is = terms(algorithm, batch)
    weights_N = as_it_is.weights_N
    found = {
        name: Pull(pull(terms(free, _with_advantages(batch, advantages_N)).policy_N))
        for name, advantages_N in advantages.items()
    }
    unbounded = pull(terms(free, batch).policy_N)
    bounded = pull(as_it_is.policy_N)
    found[CLIP] = Pull(bounded - unbounded)
    if importance_N is not None:
        found[IMPORTANCE] = Pull(pull(importance_N * as_it_is.policy_N) - bounded)
    if weighing.kl > 0 and as_it_is.kl_N is not None:
        found[KL] = Pull(weighing.kl * pull(as_it_is.kl_N))
    if weighing.entropy > 0 and entropy_N is not None:
        found[ENTROPY] = Pull(torch.zeros_like(weights_N), -weighing.entropy * weighing.scale * weights_N)
    return found


def _with_advantages(batch: MicroBatch, advantages_N: torch.Tensor) -> MicroBatch:
    advantages_BT = torch.zeros_like(batch.advantages_BT, dtype=advantages_N.dtype)
    advantages_BT.view(-1)[batch.trained_N] = advantages_N
    return replace(batch, advantages_BT=advantages_BT)
