"""Can the prompt be identified from the thought? Accuracies, their exact chance, and a permutation test.

Promise: a model that scores all prompts alike gets exactly chance, for any order of the columns. Scores within the
scorer's stated rounding share the credit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from heedful.diagnostics.cross_scores.jackknife import mean_over_rows, rate_from
from heedful.diagnostics.cross_scores.score_matrix import Floats, Integers, ScoreMatrix
from heedful.types import Metric

TOP = (2, 4, 8)
"""The k of accuracy@k, taken where there are more prompts than that."""
WAYS = (2, 8)
"""The J of J-way accuracy."""
DRAWS = 999
"""Random permutations when there are too many to count them all."""
RETRIEVAL_NAMES = (
    *("accuracy", "chance"),
    *(f"{name}@{k}" for k in TOP for name in ("accuracy", "chance")),
    *(f"accuracy_{ways}way" for ways in WAYS),
    "p_value",
)
"""Below `retrieval/<scope>/`, in this order."""
ALL_UP_TO = 6
"""So many prompts, and all permutations are counted."""
FEWEST_FOR_TEST = 5

Credit = Callable[[Integers, Integers, int], Floats]
"""(rivals strictly above, rivals tied, prompts) -> expected credit of each row under random tie-breaking."""


def retrieval(matrix: ScoreMatrix, rng: np.random.Generator) -> dict[str, Metric]:
    """`RETRIEVAL_NAMES` to metrics: accuracies with intervals, their chance, and the permutation test's p-value.

    `rng` is drawn from only with more than six prompts. The matrix must hold at least one row.
    """
    metrics = [*accuracies(matrix), _chance(matrix, "chance", 1), *(_chance(matrix, f"chance@{k}", k) for k in TOP)]
    if matrix.prompts < FEWEST_FOR_TEST:
        metrics.append(_missing(matrix, "p_value", FEWEST_FOR_TEST))
    else:
        metrics.append(Metric("p_value", p_value(matrix, rng), matrix.rows))
    return {metric.name: metric for metric in metrics}


def accuracies(matrix: ScoreMatrix) -> list[Metric]:
    """All accuracies with their intervals; no random number is drawn."""
    return [
        _accuracy(matrix, "accuracy", 2, top_k_credit(1)),
        *(_accuracy(matrix, f"accuracy@{k}", k + 1, top_k_credit(k)) for k in TOP),
        *(_accuracy(matrix, f"accuracy_{ways}way", ways, j_way_credit(ways)) for ways in WAYS),
    ]


def top_k_credit(k: int) -> Credit:
    """1 if the own prompt is among the k best, 0 if not, the chance of it when a tie straddles the edge."""
    return lambda above, tied, _: np.clip((k - above) / (tied + 1.0), 0.0, 1.0)


def j_way_credit(ways: int) -> Credit:
    """Chance that the own prompt wins against `ways` - 1 rivals drawn without replacement, ties broken at random.

    With r rivals above and s tied among N prompts: [C(N-r, J) - C(N-1-r-s, J)] / [(s+1) C(N-1, J-1)]. Does not
    depend on N in expectation, so values of unequal N compare.
    """

    def credit(above: Integers, tied: Integers, prompts: int) -> Floats:
        choose = np.array([math.comb(number, ways) for number in range(prompts + 1)], dtype=np.float64)
        # A row of the deleted prompt has one rival too many for the table; its credit is ignored.
        worse = np.maximum(prompts - 1 - above - tied, 0)
        won: Floats = (choose[prompts - above] - choose[worse]) / ((tied + 1.0) * math.comb(prompts - 1, ways - 1))
        return won

    return credit


def p_value(matrix: ScoreMatrix, rng: np.random.Generator) -> float:
    """Share of the assignments of columns to prompt groups that retrieve as well as the true one.

    Whole groups are dealt, since thoughts of one prompt are correlated. Dealing single thoughts would call noise that a
    group shares significant. All N! ways when N <= 6; else (1 + #) / (999 + 1).
    """
    prompts = matrix.prompts
    credit_NN = _credit_of_columns(matrix)
    rounding = 1e-9 * matrix.rows
    enough = float(np.trace(credit_NN)) - rounding
    if prompts <= ALL_UP_TO:
        dealt = np.array(list(itertools.permutations(range(prompts))))
        return float(np.mean(credit_NN[np.arange(prompts), dealt].sum(axis=1) >= enough))
    dealt = rng.permuted(np.tile(np.arange(prompts), (DRAWS, 1)), axis=1)
    as_good = int(np.sum(credit_NN[np.arange(prompts), dealt].sum(axis=1) >= enough))
    return (1 + as_good) / (DRAWS + 1)


def _accuracy(matrix: ScoreMatrix, name: str, fewest: int, credit: Credit) -> Metric:
    """The mean credit; it exists from `fewest` prompts on, its interval from one more."""
    if matrix.prompts < fewest:
        return _missing(matrix, name, fewest)
    lead_MN = matrix.scores_MN - matrix.own(matrix.scores_MN)[:, None]
    above_MN, tied_MN = lead_MN > matrix.noise, np.abs(lead_MN) <= matrix.noise
    tied_MN[np.arange(matrix.rows), matrix.own_M] = False
    above_M, tied_M = above_MN.sum(axis=1), tied_MN.sum(axis=1)
    deleted_MN = None
    if matrix.prompts > fewest:
        deleted_MN = credit(above_M[:, None] - above_MN, tied_M[:, None] - tied_MN, matrix.prompts - 1)
    rows_M = credit(above_M, tied_M, matrix.prompts)
    why = f"an interval needs at least {fewest + 1} prompts"
    return rate_from(name, mean_over_rows(matrix, rows_M, deleted_MN, why), matrix.rows)


def _chance(matrix: ScoreMatrix, name: str, k: int) -> Metric:
    return Metric(name, k / matrix.prompts, matrix.rows) if matrix.prompts > k else _missing(matrix, name, k + 1)


def _missing(matrix: ScoreMatrix, name: str, fewest: int) -> Metric:
    return Metric(name, None, matrix.rows, why=f"needs at least {fewest} prompts, found {matrix.prompts}")


def _credit_of_columns(matrix: ScoreMatrix) -> Floats:
    """Row a, column b: credit that the thoughts of prompt a would earn if b were their own prompt."""
    scores_MN, prompts = matrix.scores_MN, matrix.prompts
    winners = np.nonzero(scores_MN.max(axis=1, keepdims=True) - scores_MN <= matrix.noise)
    tied = (np.abs(scores_MN[winners[0]] - scores_MN[winners][:, None]) <= matrix.noise).sum(axis=1)
    credit_NN = np.zeros((prompts, prompts))
    np.add.at(credit_NN, (matrix.own_M[winners[0]], winners[1]), 1.0 / tied)
    return credit_NN
