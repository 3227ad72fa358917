"""Mutual information and retrieval from a matrix of scores, in one call."""

from __future__ import annotations

import numpy as np

from heedful.diagnostics.cross_scores.information import information
from heedful.diagnostics.cross_scores.score_matrix import score_matrix
from heedful.seeds import derive
from heedful.types import CrossScores, Metric

ROUNDING = 1e-3
"""Log-probabilities, summed over the tokens of a thought, may be above 0 by so much."""


def measure(scores: CrossScores, *, scope: str = "first_turn", seed: int = 0) -> dict[str, Metric]:
    """Measure whether thoughts depend on their prompts, given log p(thought i | prompt j) from any model.

    Args:
        scores: log-probabilities of M thoughts under N distinct prompts, in nats, with the thoughts' lengths.
        scope: the middle part of the metrics' names.
        seed: of the permutation test of retrieval, the one part that draws random numbers.

    Returns:
        `information/<scope>/...` and `retrieval/<scope>/...` by name, with intervals; docs/metrics.md defines them.

    Raises ValueError for shapes that do not fit together, and for scores that are no log-probabilities.
    """
    if not isinstance(scores, CrossScores):
        raise ValueError(
            f"Expected heedful.types.CrossScores, found a {type(scores).__name__}. "
            "Give CrossScores(scores_MN, lengths_M, own_M): a row, a length and its prompt's column per thought."
        )
    if not isinstance(scope, str) or not scope or not scope.isprintable():
        raise ValueError(f"Expected a name as `scope`, the middle part of the metrics' names, found {scope!r}.")
    matrix = score_matrix(scores)
    highest = float(np.max(matrix.scores_MN, initial=-np.inf))
    if highest > max(ROUNDING, matrix.noise):
        raise ValueError(
            f"Expected log-probabilities, which are at most 0, found {highest:g}. Give log p, and not losses or "
            "probabilities."
        )
    rng = np.random.default_rng(derive(seed, "permutations", scope))
    return {metric.name: metric for metric in information(scores, scope, rng).metrics}
