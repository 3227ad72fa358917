"""How much the thoughts of a score matrix tell about their prompts: the quantities of `information/*`.

Each function returns a quantity of the batch's empirical mixture of prompts, in nats, with its delete-one-prompt
values. H(Z) = I + H(Z given X) holds row by row.

With L[i, j] = log p(z_i | x_j) and w_j the share of rows sampled under x_j: matched_i = L[i, own] and
marginal_i = logsumexp_j (L[i, j] + log w_j).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heedful.diagnostics.cross_scores.jackknife import (
    Estimate,
    deleted_means,
    log_sums_without,
    mean_over_rows,
    metric_from,
)
from heedful.diagnostics.cross_scores.score_matrix import Floats, ScoreMatrix
from heedful.types import Metric

FEW_PROMPTS = "an interval needs at least 3 prompts"
EPSILON = 1e-3
"""Added to the z-score's divisor, as published."""
MEMORY = 0.9
"""Weight of the old value in the z-score's moving divisor, as published."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Matched and marginal log-probabilities of M rows."""

    matched_M: Floats
    marginal_M: Floats
    without_MN: Floats
    """The marginal when prompt j is deleted and the other shares are renormalised. Infinite when there is only one."""

    def per_token(self, lengths_M: Floats) -> Mixture:
        """Each row divided by its length: a mixture of whole thoughts, per token."""
        return Mixture(self.matched_M / lengths_M, self.marginal_M / lengths_M, self.without_MN / lengths_M[:, None])

    @property
    def gain_M(self) -> Floats:
        """What knowing the prompt adds to the log-probability of the thought. Its mean is the plug-in MI."""
        return self.matched_M - self.marginal_M

    @property
    def gain_without_MN(self) -> Floats:
        return self.matched_M[:, None] - self.without_MN


def mixture(matrix: ScoreMatrix, scores_MN: Floats) -> Mixture:
    """`scores_MN` is the matrix's own, that of a head, or one of per-token means."""
    terms_MN = scores_MN + np.log(matrix.shares_N)
    others_N = 1.0 - matrix.shares_N
    left_out_MN = log_sums_without(terms_MN)
    if matrix.prompts > 1:
        left_out_MN = left_out_MN - np.log(others_N)
    return Mixture(matrix.own(scores_MN), np.logaddexp.reduce(terms_MN, axis=1), left_out_MN)


def ceiling(matrix: ScoreMatrix) -> float:
    """The entropy of the prompts' shares: the most that a thought can tell about which prompt it came from."""
    return float(-np.sum(matrix.shares_N * np.log(matrix.shares_N)))


def information(matrix: ScoreMatrix, mixed: Mixture) -> Estimate:
    """The mean gain."""
    deleted_MN = mixed.gain_without_MN if matrix.prompts >= 3 else None
    return mean_over_rows(matrix, mixed.gain_M, deleted_MN, FEW_PROMPTS)


def leave_one_out(matrix: ScoreMatrix, mixed: Mixture) -> Estimate:
    """The gain over a mixture that lacks the matched prompt: at least the MI in expectation."""
    rows_M = mixed.matched_M - matrix.own(mixed.without_MN)
    if matrix.prompts < 3:
        return mean_over_rows(matrix, rows_M, None, FEW_PROMPTS)
    terms_MN = matrix.scores_MN + np.log(matrix.shares_N)
    terms_MN[np.arange(matrix.rows), matrix.own_M] = -np.inf
    without_both_MN = log_sums_without(terms_MN) - np.log(_share_of_others(matrix))
    return mean_over_rows(matrix, rows_M, mixed.matched_M[:, None] - without_both_MN)


def gap(matrix: ScoreMatrix, per_token: bool = False) -> Estimate:
    """Matched minus the weighted mean over the other prompts, of a thought or of its tokens.

    Not capped by the number of prompts. By the chain rule it is a sum over tokens: words that are as likely under
    every prompt add nothing to it, and they lower it per token.
    """
    units_M = matrix.lengths_M if per_token else np.ones(matrix.rows)
    matched_M = matrix.own(matrix.scores_MN)
    weighted_MN = matrix.scores_MN * matrix.shares_N
    weighted_MN[np.arange(matrix.rows), matrix.own_M] = 0.0
    sums_M = weighted_MN.sum(axis=1)
    others_M = 1.0 - matrix.shares_N[matrix.own_M]
    rows_M = (matched_M - sums_M / others_M) / units_M
    if matrix.prompts < 3:
        return mean_over_rows(matrix, rows_M, None, FEW_PROMPTS)
    rivals_MN = (sums_M[:, None] - weighted_MN) / _share_of_others(matrix)
    return mean_over_rows(matrix, rows_M, (matched_M[:, None] - rivals_MN) / units_M[:, None])


def gap_per_token(matrix: ScoreMatrix) -> Metric:
    """`gap` per token as a metric of that bare name; null where it cannot be measured."""
    if matrix.prompts < 2 or not matrix.finite():
        why = f"needs at least 2 prompts, found {matrix.prompts}" if matrix.finite() else "scores are not finite"
        return Metric("gap_per_token", None, matrix.rows, why=why)
    return metric_from("gap_per_token", gap(matrix, per_token=True), matrix.rows)


def conditional_entropy(matrix: ScoreMatrix, mixed: Mixture) -> Estimate:
    """H(Z given X): minus the mean matched log-probability."""
    rows_M = -mixed.matched_M
    deleted_MN = np.broadcast_to(rows_M[:, None], matrix.scores_MN.shape) if matrix.prompts >= 3 else None
    return mean_over_rows(matrix, rows_M, deleted_MN, FEW_PROMPTS)


def thought_tokens(matrix: ScoreMatrix) -> Estimate:
    """The mean length of the thoughts."""
    deleted_MN = np.broadcast_to(matrix.lengths_M[:, None], matrix.scores_MN.shape) if matrix.prompts >= 3 else None
    return mean_over_rows(matrix, matrix.lengths_M, deleted_MN, FEW_PROMPTS)


def marginal_entropy(matrix: ScoreMatrix, mixed: Mixture) -> Estimate:
    """H(Z): minus the mean marginal log-probability."""
    deleted_MN = -mixed.without_MN if matrix.prompts >= 3 else None
    return mean_over_rows(matrix, -mixed.marginal_M, deleted_MN, FEW_PROMPTS)


def smoothed_std(mixed: Mixture, previous: float | None) -> float:
    """Population standard deviation over rows of the marginal, smoothed by the one before (first value raw)."""
    std = float(np.std(mixed.marginal_M))
    return std if previous is None else MEMORY * previous + (1 - MEMORY) * std


def zscore(matrix: ScoreMatrix, mixed: Mixture, previous: float | None = None) -> Estimate:
    """The mean gain over (standard deviation of the marginal + 1e-3); `previous` smooths the deviation.

    Source: MI-ZScore and MI-ZScore-EMA of RAGEN-2 (arXiv:2604.06268); as there, only the divisor is smoothed.
    """
    value = float(mixed.gain_M.mean()) / (smoothed_std(mixed, previous) + EPSILON)
    if matrix.prompts < 3:
        return Estimate(value, None, FEW_PROMPTS)
    centred_MN = mixed.without_MN - deleted_means(matrix, mixed.without_MN)
    std_N = np.sqrt(deleted_means(matrix, centred_MN**2))
    divisor_N = std_N if previous is None else MEMORY * previous + (1 - MEMORY) * std_N
    return Estimate(value, deleted_means(matrix, mixed.gain_without_MN) / (divisor_N + EPSILON))


def _share_of_others(matrix: ScoreMatrix) -> Floats:
    """Share of the rows that belongs neither to the row's own prompt nor to the deleted one; 1 where they are one."""
    own_share_M1 = matrix.shares_N[matrix.own_M][:, None]
    same_MN = matrix.own_M[:, None] == np.arange(matrix.prompts)
    rest: Floats = np.where(same_MN, 1.0, 1.0 - own_share_M1 - matrix.shares_N)
    return rest
