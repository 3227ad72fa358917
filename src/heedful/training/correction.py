"""Corrections for a sampler that is not the learner: importance weights, truncated or masked, by token or by turn.

With r = learner / sampler before the update, per token, or its product R over a turn. Sources: truncated importance
sampling (Ionides 2008), masks of what lies outside an interval (IcePop, "When speed kills stability", 2025). Deviation:
a product runs over one turn, since over an episode of many turns it is 0 or infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

from heedful.algorithms.table import Algorithm
from heedful.types import Metric, TrainingSample

EXACT = 1e-3
"""Sampler and learner count as one policy where their log-probabilities differ by at most this, in nats."""

METRICS = ("importance_truncated", "importance_masked", "importance_kl", "importance_ess")
"""The metrics of a correction, after `policy/`."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What the update of the policy uses instead of the samples. Lists are per sample, tensors per trained token."""

    samples: Sequence[TrainingSample]
    """Masked tokens are no longer trained, so they are in no denominator."""
    learner: Sequence[torch.Tensor] | None
    """The learner's log-probabilities before the update. `None` where the two agree."""
    weights: Sequence[torch.Tensor] | None
    """The importance weights. `None` where the two agree."""
    metrics: Sequence[Metric]


def corrected(algorithm: Algorithm, samples: Sequence[TrainingSample], learner: Sequence[torch.Tensor]) -> Correction:
    """The correction of a batch. `learner`: for each sample its trained tokens' log-probabilities before the update."""
    sampled = [
        logprobs_T.new_tensor([one for one, trained in zip(sample.logprobs, sample.trained, strict=True) if trained])
        for sample, logprobs_T in zip(samples, learner, strict=True)
    ]
    logs = [ours_T - theirs_T for ours_T, theirs_T in zip(learner, sampled, strict=True)]
    if max((float(log_T.abs().max()) for log_T in logs if len(log_T)), default=0.0) <= EXACT:
        return Correction(samples, None, None, _metrics(samples, logs, logs, truncated=0, masked=0))
    cap = math.inf if algorithm.importance_cap is None else algorithm.importance_cap
    floor = algorithm.importance_floor
    by_turn = algorithm.importance_level == "turn"
    at_level = [_over_turns(sample, log_T) if by_turn else log_T for sample, log_T in zip(samples, logs, strict=True)]
    raw = [log_T.exp() for log_T in at_level]
    outside = [(weights_T < floor) | (weights_T > cap) for weights_T in raw]
    count = sum(int(outside_T.sum()) for outside_T in outside)
    if algorithm.importance_outside == "truncate":
        weights = [weights_T.clamp(floor, cap) for weights_T in raw]
        return Correction(samples, learner, weights, _metrics(samples, logs, at_level, truncated=count, masked=0))
    kept = [~outside_T for outside_T in outside]
    return Correction(
        [_without(sample, kept_T.tolist()) for sample, kept_T in zip(samples, kept, strict=True)],
        [logprobs_T[kept_T] for logprobs_T, kept_T in zip(learner, kept, strict=True)],
        [weights_T[kept_T] for weights_T, kept_T in zip(raw, kept, strict=True)],
        _metrics(samples, logs, at_level, truncated=0, masked=count),
    )


def _over_turns(sample: TrainingSample, log_T: torch.Tensor) -> torch.Tensor:
    """Each trained token's log-ratio replaced by the sum over its turn, a run of trained tokens."""
    lengths = [len(list(run)) for trained, run in groupby(sample.trained) if trained]
    sums = [turn_T.sum().expand(len(turn_T)) for turn_T in log_T.split(lengths)] if lengths else []
    return torch.cat(sums) if sums else log_T


def _without(sample: TrainingSample, kept: Sequence[bool]) -> TrainingSample:
    """The sample, with its trained tokens that are not kept as context alone."""
    flags = iter(kept)
    trained = tuple(flag and next(flags) for flag in sample.trained)
    return replace(
        sample,
        trained=trained,
        logprobs=tuple(value if flag else 0.0 for value, flag in zip(sample.logprobs, trained, strict=True)),
        advantages=tuple(value if flag else 0.0 for value, flag in zip(sample.advantages, trained, strict=True)),
    )


def _metrics(
    samples: Sequence[TrainingSample],
    logs: Sequence[torch.Tensor],
    at_level: Sequence[torch.Tensor],
    *,
    truncated: int,
    masked: int,
) -> list[Metric]:
    """Over the trained tokens, before anything is masked: shares, the mean of k3, and the effective share. Replayed
    successes are left out. Their weights are 1, since their log-probabilities are the learner's.

    k3 = r - 1 - log r, an estimate of KL(sampler || learner) per token. The effective share is (sum w)^2 / (n sum w^2)
    of the raw weights w (Kong 1992).
    """
    own = [place for place, sample in enumerate(samples) if sample.regularised]
    tokens = sum(len(logs[place]) for place in own)
    if not tokens:
        return unread("no token of an episode of this step to train on")
    log_N = torch.cat([logs[place].double() for place in own])
    weights_N = torch.cat([at_level[place].double() for place in own]).clamp(max=300.0).exp()
    k3 = float((torch.expm1(log_N) - log_N).mean())
    ess = float(weights_N.sum().square() / (tokens * weights_N.square().sum()))
    values = (truncated / tokens, masked / tokens, k3, ess)
    return [Metric(f"policy/{name}", value, n=tokens) for name, value in zip(METRICS, values, strict=True)]


def unread(why: str) -> list[Metric]:
    """The same metrics of a step without a correction."""
    return [Metric(f"policy/{name}", None, why=why) for name in METRICS]
