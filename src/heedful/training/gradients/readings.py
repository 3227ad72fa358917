"""Readings of sampled thoughts whose change in an update can be split: their values, and the rows of their gradient.

A reading is a mean over prompts i and thoughts z of i of a value h_i(z). Its gradient has a score part,
E[(h - baseline) grad log p_i(z)], and where the value itself is made of probabilities a pathwise part,
E[sum_j f_ij grad log p_j(z)]. Where it is made of the probabilities of actions behind the thought, the pathwise part is
E[sum_ja f_ija grad log p(a given x_j, z)]. All are sums over rows: a thought behind a prompt, or an action behind both,
with one weight for all its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Answers:
    """S spellings of first actions, behind M thoughts under N prompts."""

    logprobs_MNS: Floats
    """log p(s given x_j, z_i), in nats."""
    worths_MNS: Floats
    """What a probability of 1 counts for in the value of the thought. 0 under the own prompt."""

    @property
    def counted_MNS(self) -> Floats:
        return np.asarray(self.worths_MNS * np.exp(self.logprobs_MNS))


@dataclass(frozen=True, slots=True)
class Sampled:
    """M thoughts of N prompts, read at one set of weights."""

    scores_MN: Floats
    """log p(z_i given x_j), in nats."""
    own_M: Integers
    """The prompt of each thought."""
    shares_N: Floats
    """w_j: the share of each prompt in the mean. They add up to 1."""
    outcomes_M: Floats
    """What came of the whole episode, 0 to 1."""
    replies_M: Floats
    """The log-probability of everything that was sampled in the episode, in nats."""
    weights_M: Floats | None = None
    """What each thought counts for in the mean. `None`: all the same. (w_i p_i(z) where all thoughts are listed.)"""
    answers: Answers | None = None
    """The actions behind the thoughts, where they were read."""

    @property
    def own_scores_M(self) -> Floats:
        own_M: Floats = self.scores_MN[np.arange(len(self.own_M)), self.own_M]
        return own_M

    @property
    def counts_M(self) -> Floats:
        return np.full(len(self.own_M), 1 / len(self.own_M)) if self.weights_M is None else self.weights_M

    @property
    def foreign_MN(self) -> Floats:
        """omega_ij = w_j / (1 - w_i) for the prompts j other than the own prompt i, 0 for i."""
        foreign_MN = self.shares_N / (1 - self.shares_N[self.own_M])[:, None]
        foreign_MN[np.arange(len(self.own_M)), self.own_M] = 0.0
        return foreign_MN

    @property
    def mixture_M(self) -> Floats:
        """log of the mean over prompts of p(z given x_j), with their shares."""
        return np.asarray(np.logaddexp.reduce(self.scores_MN + np.log(self.shares_N), axis=1))


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read one quantity."""

    value: Callable[[Sampled], Floats]
    """The value of each thought, `[M]`."""
    path: Callable[[Sampled], Floats] | None = None
    """f_ij, `[M, N]`, 0 for the own prompt. `None`: there is no pathwise part."""
    constant: Callable[[Sampled, Sampled], Floats] | None = None
    """Of the weights before and after: a number per thought whose expectation is 0, which the change is freed of."""
    whole: bool = False
    """The score is that of the whole episode, not of its first thought alone."""
    acts: bool = False
    """The value is made of the probabilities of actions, and its pathwise part is theirs."""


def _ratios(before: Sampled, after: Sampled) -> Floats:
    return np.expm1(after.own_scores_M - before.own_scores_M)


READINGS: dict[str, Reading] = {
    "gap": Reading(
        lambda at: at.own_scores_M - (at.foreign_MN * at.scores_MN).sum(axis=1),
        path=lambda at: -at.foreign_MN,
        constant=_ratios,
    ),
    "mi": Reading(
        lambda at: at.own_scores_M - at.mixture_M,
        constant=lambda before, after: _ratios(before, after) - np.expm1(after.mixture_M - before.mixture_M),
    ),
    "thought_entropy": Reading(lambda at: -at.own_scores_M, constant=lambda before, after: -_ratios(before, after)),
    "success": Reading(lambda at: at.outcomes_M, whole=True),
    "right_by_thought": Reading(lambda at: _answers(at).counted_MNS.sum(axis=(1, 2)), acts=True),
}
"""gap: sum over pairs of prompts of w_i omega_ij KL(p_i, p_j), in nats. mi: the mutual information of these prompts and
their thoughts, at most log N. thought_entropy: of a thought given its prompt, in nats. success: the mean outcome.
right_by_thought: how right first actions are by the thought alone, beyond chance (`diagnostics.actions.rightness`)."""


def _answers(at: Sampled) -> Answers:
    assert at.answers is not None
    return at.answers


def worths_by_thought(right_NA: Floats) -> Floats:
    """What action a under prompt j counts for in `right_by_thought` behind a thought of prompt i: `[N, N, A]`.

    (r_i(a) - mean of r_k(a) over the k other than i and j) / (N - 1), and 0 for j = i. `right_NA`: r, how right each
    action is for each of N >= 3 prompts. The mean over prompts and thoughts is then the U-statistic of the split.
    """
    prompts = len(right_NA)
    others_NNA = right_NA.sum(axis=0) - right_NA[:, None] - right_NA[None]
    worths_NNA: Floats = (right_NA[:, None] - others_NNA / (prompts - 2)) / (prompts - 1)
    worths_NNA[np.arange(prompts), np.arange(prompts)] = 0.0
    return worths_NNA


def baselines(values_M: Floats, at: Sampled) -> Floats:
    """A number for each thought that does not depend on it: the mean value of the other thoughts of its prompt, 0
    where there is none. Where all thoughts are listed with their weights: the mean of the prompt."""
    own_M = at.own_M
    if at.weights_M is not None:
        means_N: Floats = np.bincount(own_M, at.weights_M * values_M) / np.bincount(own_M, at.weights_M)
        return means_N[own_M]
    others_M = np.bincount(own_M)[own_M] - 1
    means_M: Floats = (np.bincount(own_M, values_M)[own_M] - values_M) / np.maximum(others_M, 1)
    return np.where(others_M > 0, means_M, 0.0)


def score_weights(reading: Reading, at: Sampled) -> Floats:
    """What the own log-probability of each thought counts for in the gradient: `[M]`."""
    values_M = reading.value(at)
    return at.counts_M * (values_M - baselines(values_M, at))


def path_weights(reading: Reading, at: Sampled) -> Floats | None:
    """What each foreign log-probability counts for in the gradient, `[M, N]`; `None` without a pathwise part."""
    return None if reading.path is None else at.counts_M[:, None] * reading.path(at)


def action_weights(reading: Reading, at: Sampled) -> Floats | None:
    """What each log-probability of an action counts for in the gradient, `[M, N, S]`; `None` where none does."""
    return at.counts_M[:, None, None] * _answers(at).counted_MNS if reading.acts else None


def change(reading: Reading, before: Sampled, after: Sampled) -> float:
    """The reading after an update minus the reading before, from thoughts that were sampled before it.

    Thoughts are weighed by what the update made of their probability. To first order this is the gradient's own
    estimate, so noise that both share does not part them.
    """
    old_M, new_M = reading.value(before), reading.value(after)
    base_M = baselines(old_M, before)
    moved_M = after.replies_M - before.replies_M if reading.whole else after.own_scores_M - before.own_scores_M
    found_M = np.exp(moved_M) * (new_M - base_M) - (old_M - base_M)
    if reading.constant is not None:
        found_M -= reading.constant(before, after)
    return float(before.counts_M @ found_M)


def drawn_foreign(weights_MN: Floats, count: int, order: Sequence[Sequence[int]]) -> Floats:
    """The weights of `count` foreign prompts for each thought, the rest 0: without bias for the sum over all of them.

    `order`: for each thought the foreign prompts in an order drawn evenly. Weights may have more axes behind the two.
    """
    kept_MN = np.zeros_like(weights_MN)
    for row, columns in enumerate(order):
        chosen = list(columns[:count])
        kept_MN[row, chosen] = weights_MN[row, chosen] * (len(columns) / max(len(chosen), 1))
    return kept_MN
