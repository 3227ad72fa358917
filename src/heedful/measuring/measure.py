"""Mutual information and retrieval from a matrix of scores, in one call."""

from __future__ import annotations

import numpy as np

from heedful.diagnostics.cross_scores.information import information
from heedful.seeds import derive
from heedful.types import CrossScores, Metric


def measure(scores: CrossScores, *, scope: str = "first_turn", seed: int = 0) -> dict[str, Metric]:
    """Measure whether thoughts depend on their prompts, given log p(thought i | prompt j) from any model.

    Args:
        scores: log-probabilities of M thoughts under N distinct prompts, in nats, with the thoughts' lengths.
        scope: the middle part of the metrics' names.
        seed: of the permutation test of retrieval, the one part that draws random numbers.

    Returns:
        `information/<scope>/...` and `retrieval/<scope>/...` by name, with intervals; docs/metrics.md defines them.

    Raises ValueError for shapes that do not fit together.
    """
    rng = np.random.default_rng(derive(seed, "permutations", scope))
    return {metric.name: metric for metric in information(scores, scope, rng).metrics}
