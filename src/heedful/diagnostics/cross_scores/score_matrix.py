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

from heedful.diagnostics.statistics.group_statistics import LARGEST
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
        """Whether all scores are numbers whose squares are finite."""
        matrices = (self.scores_MN, *self.heads.values())
        return all(bool((np.abs(matrix_MN) <= LARGEST).all()) for matrix_MN in matrices)


def score_matrix(scores: CrossScores) -> ScoreMatrix:
    """Check and convert. Empty scores (no thought at all) give a matrix without rows.

    Raises ValueError if shapes disagree, values are no numbers, a thought has no token, or a prompt has no thought of
    its own (its share of the rows would be 0: leave its column out, as `select_rows` does).
    """
    own_M = _numbers("own_M", scores.own_M, 1)
    lengths_M = _numbers("lengths_M", scores.lengths_M, 1)
    rows = len(own_M)
    scores_MN = _numbers("scores_MN", scores.scores_MN, 2) if rows else np.zeros((0, 0))
    prompts = scores_MN.shape[1]
    if len(scores_MN) != rows:
        raise ValueError(
            f"Expected one row of scores per thought, found {len(scores_MN)} rows for the {rows} thoughts of `own_M`. "
            "Give one row per thought and one column per prompt."
        )
    if len(lengths_M) != rows:
        raise ValueError(f"Expected one length per thought, found {len(lengths_M)} lengths for {rows} thoughts.")
    if scores.tasks_M is not None and (found := _shape(scores.tasks_M)) != (rows,):
        raise ValueError(
            f"Expected a list of {rows} tasks as `tasks_M`, one per thought, found "
            f"{'lists of different lengths' if found is None else f'the shape {found}'}."
        )
    unmeasured = np.flatnonzero(~((lengths_M >= 1) & (lengths_M < np.inf)))
    if len(unmeasured):
        thought = int(unmeasured[0])
        raise ValueError(f"Thought {thought} has {lengths_M[thought]:g} tokens; score only thoughts with at least one.")
    strange = np.flatnonzero(~((own_M >= 0) & (own_M < prompts) & (own_M == np.rint(own_M))))
    if len(strange):
        thought = int(strange[0])
        raise ValueError(
            f"`own_M` must name columns 0 to {prompts - 1}, found {own_M[thought]:g} for thought {thought}."
        )
    own_M = own_M.astype(np.int64)
    noise = float(_numbers("noise", scores.noise, 0))
    if not 0 <= noise < np.inf:
        raise ValueError(f"Expected a rounding error of at least 0 nats as `noise`, found {noise:g}.")
    heads = _heads(scores.heads, scores_MN) if rows else {}
    counts_N = np.bincount(own_M, minlength=prompts).astype(np.int64)
    if rows and counts_N.min() < 1:
        raise ValueError(
            f"No thought was sampled under prompt {int(counts_N.argmin())} of {prompts}; leave its column out "
            "(`select_rows` drops thoughts together with the prompts that they leave empty)."
        )
    return ScoreMatrix(scores_MN, lengths_M, own_M, counts_N, heads, noise)


def _numbers(name: str, values: Any, dimensions: int) -> npt.NDArray[Any]:
    """The values as an array. It is never reshaped: numbers that change their places would be other scores."""
    try:
        if isinstance(values, np.ma.MaskedArray):
            values = np.ma.filled(values.astype(np.float64), np.nan)  # what is masked is missing
        if isinstance(values, np.ndarray) and np.iscomplexobj(values):
            raise TypeError("complex numbers")
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(
            f"Expected numbers as `{name}`, found a {type(values).__name__} that holds others ({error}). "
            "Give lists of equal lengths or an array, and a tensor as `tensor.detach().cpu().double()`."
        ) from error
    if numbers.ndim != dimensions:
        form = ("a number", "a list of numbers", "a matrix of numbers")[dimensions]
        raise ValueError(f"Expected {form} as `{name}`, found the shape {numbers.shape}.")
    return numbers


def _shape(values: Any) -> tuple[int, ...] | None:
    """The shape of nested lists. `None` where their lengths differ."""
    try:
        return np.shape(values)
    except ValueError:
        return None


def _heads(heads: Any, scores_MN: Floats) -> dict[int, Floats]:
    """The scores of heads, each of the shape of the whole scores."""
    if not isinstance(heads, Mapping) or any(not isinstance(k, int | np.integer) or k < 1 for k in heads):
        raise ValueError(f"Expected `heads` to map numbers of tokens, from 1 on, to scores, found {heads!r:.100}.")
    found = {int(k): _numbers(f"heads[{k}]", head_MN, 2) for k, head_MN in heads.items()}
    for k, head_MN in found.items():
        if head_MN.shape != scores_MN.shape:
            raise ValueError(f"Expected `heads[{k}]` of the shape {scores_MN.shape}, found {head_MN.shape}.")
    return found


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
