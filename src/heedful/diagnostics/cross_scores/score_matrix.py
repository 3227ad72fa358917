"""Cross-scores as checked arrays.

What passes `score_matrix` has consistent shapes, at least one row per column and float64 numbers. The statistics need
no checks of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heedful.types import CrossScores

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ScoreMatrix:
    """`CrossScores` of M thoughts under N prompts as arrays, with the prompts' shares of the rows."""

    scores_MN: Floats
    lengths_M: Floats
    own_M: Integers
    counts_N: Integers
    """Rows sampled under each prompt, at least 1."""
    heads: Mapping[int, Floats]
    noise: float

    @property
    def rows(self) -> int:
        return len(self.own_M)

    @property
    def prompts(self) -> int:
        return len(self.counts_N)

    @property
    def shares_N(self) -> Floats:
        """w_j: prompt j's share of the rows."""
        return self.counts_N / self.rows

    def own(self, values_MN: Floats) -> Floats:
        """Each row's entry in the column of its own prompt."""
        return values_MN[np.arange(self.rows), self.own_M]

    def finite(self) -> bool:
        return all(bool(np.isfinite(matrix_MN).all()) for matrix_MN in (self.scores_MN, *self.heads.values()))


def score_matrix(scores: CrossScores) -> ScoreMatrix:
    """Check and convert. Empty scores (no thought at all) give a matrix without rows.

    Raises ValueError if shapes disagree, a thought has no token, or a prompt has no thought of its own (its share of
    the rows would be 0: leave its column out, as `select_rows` does).
    """
    own_M = np.asarray(scores.own_M, dtype=np.int64)
    lengths_M = np.asarray(scores.lengths_M, dtype=np.float64)
    rows = len(own_M)
    scores_MN = np.asarray(scores.scores_MN, dtype=np.float64).reshape(rows, -1) if rows else np.zeros((0, 0))
    prompts = scores_MN.shape[1]
    heads = {k: np.asarray(head_MN, dtype=np.float64).reshape(scores_MN.shape) for k, head_MN in scores.heads.items()}
    if len(lengths_M) != rows:
        raise ValueError(f"Expected one length per thought, found {len(lengths_M)} lengths for {rows} thoughts.")
    if rows and lengths_M.min() < 1:
        thought = int(lengths_M.argmin())
        raise ValueError(f"Thought {thought} has {lengths_M[thought]:g} tokens; score only thoughts with at least one.")
    if rows and not (own_M.min() >= 0 and own_M.max() < prompts):
        raise ValueError(f"`own_M` must name columns 0 to {prompts - 1}, found {own_M.min()} to {own_M.max()}.")
    counts_N = np.bincount(own_M, minlength=prompts).astype(np.int64)
    if rows and counts_N.min() < 1:
        raise ValueError(
            f"No thought was sampled under prompt {int(counts_N.argmin())} of {prompts}; leave its column out "
            "(`select_rows` drops thoughts together with the prompts that they leave empty)."
        )
    return ScoreMatrix(scores_MN, lengths_M, own_M, counts_N, heads, scores.noise)


def select_rows(scores: CrossScores, chosen_M: Sequence[bool]) -> CrossScores:
    """The cross-scores of some of the thoughts, e.g. the closed ones, under the prompts that these came from."""
    return take_rows(scores, np.flatnonzero(np.asarray(chosen_M, dtype=bool)).tolist())


def take_rows(scores: CrossScores, rows: Sequence[int]) -> CrossScores:
    """The cross-scores of the thoughts with these numbers, in this order, under the prompts that they came from."""
    chosen = np.asarray(rows, dtype=np.int64)
    own_M = np.asarray(scores.own_M, dtype=np.int64)[chosen]
    columns = np.unique(own_M)

    def restrict(matrix_MN: Sequence[Sequence[float]]) -> Floats:
        if not len(scores.own_M):  # no thought, so no number of columns either
            return np.zeros((0, 0))
        return np.asarray(matrix_MN, dtype=np.float64).reshape(len(scores.own_M), -1)[np.ix_(chosen, columns)]

    tokens_MNT: Any = None
    if scores.tokens is not None:
        tokens_MNT = [np.asarray(scores.tokens[row])[columns] for row in rows]
    return CrossScores(
        scores_MN=restrict(scores.scores_MN),  # type: ignore[arg-type]
        lengths_M=[scores.lengths_M[row] for row in rows],
        own_M=[int(column) for column in np.searchsorted(columns, own_M)],
        heads={k: restrict(head_MN) for k, head_MN in scores.heads.items()},  # type: ignore[misc]
        noise=scores.noise,
        tokens=tokens_MNT,
        method=scores.method,
        tasks_M=None if scores.tasks_M is None else [scores.tasks_M[row] for row in rows],
    )
