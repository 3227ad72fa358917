"""The judge of words: which prompt does a thought speak for, by runs of characters alone?

Multinomial logistic regression on TF-IDF weighted n-grams, in numpy. The tests compare both with scikit-learn.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.cross_scores.score_matrix import Floats

FOLDS = 5
NGRAMS = (1, 4)
"""Shortest and longest run of characters that the judge sees."""
STRENGTH = 10.0
"""Inverse of the judge's L2 penalty, on n-gram vectors of length 1."""
TOLERANCE = 1e-3
"""The largest difference of two decisions that count as tied."""
GRADIENT = 1e-6
"""Largest entry of the gradient of the mean loss at the solution. Decisions are then within `TOLERANCE` of it."""
ROUNDS = 1000
"""Most steps of the solver. It takes about 50."""
BLOCK = 2048
"""N-grams whose products are taken at once."""
HISTORY = 10
"""Steps from which the solver reads the curvature."""


def judge_features(texts: Sequence[str]) -> Floats:
    """M texts as vectors of at most M numbers whose inner products are those of their n-gram vectors.

    An L2-penalised judge sees inner products alone, so nothing is lost and every fit is M wide instead of thousands.
    An n-gram that occurs c times in a text, and in d of M texts, weighs (1 + log c) (1 + log((1 + M) / (1 + d))).
    Vectors have length 1. Blanks in a row count as one.
    """
    columns: dict[str, int] = {}
    held_M = []
    for text in texts:
        # A thought of blanks alone still has characters, so that no vector is empty.
        text = re.sub(r"\s\s+", " ", f" {text} ")
        sizes = range(NGRAMS[0], NGRAMS[1] + 1)
        runs = Counter([text[start : start + size] for size in sizes for start in range(len(text) + 1 - size)])
        held_M.append({columns.setdefault(run, len(columns)): count for run, count in runs.items()})
    column_H = np.fromiter(chain.from_iterable(held_M), np.intp)
    count_H = np.fromiter(chain.from_iterable(held.values() for held in held_M), np.float64)
    size_M = np.array([len(held) for held in held_M])
    text_H, holders_C = np.repeat(np.arange(len(texts)), size_M), np.bincount(column_H)
    weight_H = (1 + np.log(count_H)) * (1 + np.log((1 + len(texts)) / (1 + holders_C)))[column_H]
    weight_H /= np.sqrt(np.bincount(text_H, weight_H**2))[text_H]

    # An n-gram of one text adds to no product of two. Those of several are gathered block by block.
    several_C = holders_C > 1
    place_H = np.where(several_C, np.cumsum(several_C) - 1, -1)[column_H]
    order_H = np.argsort(place_H, kind="stable")
    products_MM = np.zeros((len(texts), len(texts)))
    for start in range(0, int(several_C.sum()), BLOCK):
        inside_H = order_H[slice(*np.searchsorted(place_H, (start, start + BLOCK), sorter=order_H))]
        block_MB = np.zeros((len(texts), BLOCK))
        block_MB[text_H[inside_H], place_H[inside_H] - start] = weight_H[inside_H]
        products_MM += block_MB @ block_MB.T
    np.fill_diagonal(products_MM, 1.0)
    values_M, vectors_MM = np.linalg.eigh(products_MM)
    real = values_M > 1e-9 * values_M[-1]
    features: Floats = vectors_MM[:, real] * np.sqrt(values_M[real])
    return features


def judge_decisions(features_MF: Floats, own_M: npt.NDArray[np.intp], fold_M: npt.NDArray[np.intp]) -> Floats:
    """Row i, column j: how much thought i speaks for prompt j, to a judge that has not seen the fold of thought i."""
    inputs_MF = np.hstack([features_MF, np.ones((len(own_M), 1))])
    decisions_MN = np.empty((len(own_M), int(own_M[-1]) + 1))
    for fold in np.unique(fold_M):
        asked_M = fold_M == fold
        decisions_MN[asked_M] = inputs_MF[asked_M] @ _fitted(inputs_MF[~asked_M], own_M[~asked_M])
    return decisions_MN


def _fitted(inputs_MF: Floats, own_M: npt.NDArray[np.intp]) -> Floats:
    """The coefficients, F x N, with the least mean loss; prompts count alike, and the last input is not penalised.

    Source: L-BFGS (Nocedal 1980), with halved steps until the loss falls enough (Armijo). The loss is convex.
    """
    rows, count_N = np.arange(len(own_M)), np.bincount(own_M)
    share_M = 1 / (len(count_N) * count_N[own_M])
    penalty_F1 = np.append(np.full(inputs_MF.shape[1] - 1, 1 / (STRENGTH * len(own_M))), 0.0)[:, None]

    def loss(fitted_FN: Floats) -> tuple[float, Floats]:
        odds_MN = inputs_MF @ fitted_FN
        odds_MN -= odds_MN.max(axis=1, keepdims=True)
        error_MN = np.exp(odds_MN)
        total_M = error_MN.sum(axis=1)
        value = share_M @ (np.log(total_M) - odds_MN[rows, own_M]) + (penalty_F1 * fitted_FN**2).sum() / 2
        error_MN /= total_M[:, None]
        error_MN[rows, own_M] -= 1
        return float(value), inputs_MF.T @ (share_M[:, None] * error_MN) + penalty_F1 * fitted_FN

    fitted = np.zeros((inputs_MF.shape[1], len(count_N)))
    (value, gradient), past = loss(fitted), list[tuple[Floats, Floats, float]]()
    for _ in range(ROUNDS):
        if np.abs(gradient).max() <= GRADIENT:
            break
        direction, factors = -gradient, []
        for step, change, scale in reversed(past):
            factors.append(scale * float(np.vdot(step, direction)))
            direction = direction - factors[-1] * change
        if past:
            direction /= past[-1][2] * float(np.vdot(past[-1][1], past[-1][1]))
        for (step, change, scale), factor in zip(past, reversed(factors), strict=True):
            direction += (factor - scale * float(np.vdot(change, direction))) * step
        slope = float(np.vdot(direction, gradient))
        length = 1.0 if past else 1 / math.sqrt(-slope)
        while (found := loss(fitted + length * direction))[0] > value + 1e-4 * length * slope:
            length /= 2
        step, change = length * direction, found[1] - gradient
        past = [*past[1 - HISTORY :], (step, change, 1 / float(np.vdot(step, change)))]
        fitted, (value, gradient) = fitted + step, found
    return fitted
