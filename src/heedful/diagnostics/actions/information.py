"""The mutual information of prompt and action from few actions per prompt: one value, and an interval for the truth.

I(X;A) = H(A) - H(A|X), and each part has a bias of its own. H(A) is read from few prompts, H(A|X) from few actions of
each prompt. No estimator of an entropy is unbiased for every distribution (Paninski 2003). So the interval spans three
estimators of H(A|X) that err in different ways.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.statistics.intervals import Interval, effective_clusters, jackknife_interval
from heedful.diagnostics.statistics.special import log_gamma, psi, x_log_x

Floats = npt.NDArray[np.float64]

CONCENTRATIONS = np.geomspace(1e-3, 1e4, 60)
"""Concentrations of the Dirichlet model of the prompts' policies: from one action per prompt to one policy for all."""

FEWEST_PROMPTS = 8
"""Prompts that an interval needs. Three often agree by chance: simulated intervals held 46% of truths at worst."""


@dataclass(frozen=True, slots=True)
class Information:
    """I(X;A) in nats over the prompts that the batch's prompts were drawn from."""

    value: float
    interval: Interval | None
    """`None` for fewer than `FEWEST_PROMPTS`."""
    clusters: float | None = None
    """Effective number of prompts behind the interval."""


def action_information(counts_NA: Floats) -> Information:
    """I(X;A) of prompts and actions that were counted: rows are prompts with at least 2 actions each.

    The value is H(A) - H(A|X), at most the log of the number of actions that occur:

    - H(A): the plug-in of the pooled actions, with the jackknife's correction of bias over prompts (Quenouille 1956).
    - H(A|X): the plug-in plus its expected bias under a Dirichlet model of the prompts' policies. The model's mean is
      the pooled distribution. Its concentration is averaged over 60 values from .001 to 10,000, weighted by likelihood.
      The bias is nil where a prompt fixes its action, and largest where actions ignore the prompt.

    The interval spans the intervals of three values: with this H(A|X), with Grassberger's (2003), and with the
    jackknife's over a prompt's actions (Zahl 1977). Each has the largest half-width of the three, by deleting one
    prompt (Student's t). It reaches down by the correction of H(A), so that it also holds for the batch's own prompts.

    Coverage of the truth, and the cases in which it is too low: docs/results/coverage.md.
    """
    counts_NA = counts_NA[:, counts_NA.sum(axis=0) > 0]
    prompts = len(counts_NA)
    pooled_A, sizes_N = counts_NA.sum(axis=0), counts_NA.sum(axis=1)
    others_NA = pooled_A - counts_NA
    plugin, deleted_N = float(_entropies(pooled_A)), _entropies(others_NA)
    correction = (prompts - 1) * (plugin - float(deleted_N.mean()))
    given = [_modelled(counts_NA), *(_means(rows_N, sizes_N) for rows_N in _model_free(counts_NA))]
    values = [plugin + correction - whole for whole, _ in given]
    value = min(values[0], math.log(len(pooled_A)))
    if prompts < FEWEST_PROMPTS:
        return Information(value, None)
    half = max(jackknife_interval(0.0, deleted_N - given_N).high for _, given_N in given)
    interval = Interval(min(values) - max(correction, 0.0) - half, max(values) + half)
    return Information(value, interval, effective_clusters(deleted_N - given[0][1]))


def _modelled(counts_NA: Floats) -> tuple[float, Floats]:
    """H(A|X) corrected by the model's bias, with all prompts and without each. The model's mean stays as it is."""
    shares_A = counts_NA.sum(axis=0) / counts_NA.sum()
    sizes_N, weights_CA = counts_NA.sum(axis=1), CONCENTRATIONS[:, None] * shares_A
    fits_NC = log_gamma(CONCENTRATIONS) - log_gamma(CONCENTRATIONS + sizes_N[:, None])
    fits_NC += (log_gamma(weights_CA + counts_NA[:, None]) - log_gamma(weights_CA)).sum(axis=-1)
    sizes, place_N = np.unique(sizes_N, return_inverse=True)
    biases_NC = np.array([_expected_bias(int(size), weights_CA) for size in sizes])[place_N]
    rows_NC = sizes_N[:, None] * (_entropies(counts_NA)[:, None] + biases_NC)
    whole = _weighted(fits_NC.sum(axis=0), rows_NC.sum(axis=0)) / sizes_N.sum()
    deleted_N = _weighted(fits_NC.sum(axis=0) - fits_NC, rows_NC.sum(axis=0) - rows_NC) / (sizes_N.sum() - sizes_N)
    return float(whole), deleted_N


def _weighted(fits_C: Floats, values_C: Floats) -> Floats:
    weights_C = np.exp(fits_C - fits_C.max(axis=-1, keepdims=True))
    found: Floats = (weights_C * values_C).sum(axis=-1) / weights_C.sum(axis=-1)
    return found


def _expected_bias(size: int, weights_CA: Floats) -> Floats:
    """True minus plug-in entropy of `size` actions, expected under Dirichlet(weights), for each concentration.

    The truth is Wolpert and Wolf's (1995) mean. Counts of one action are beta-binomial.
    """
    total_C = weights_CA.sum(axis=1)
    true_C = psi(total_C + 1) - (weights_CA / total_C[:, None] * psi(weights_CA + 1)).sum(axis=1)
    counts = np.arange(1, size)  # counts of 0 and of all add nothing to an entropy
    choices = log_gamma(size + 1) - log_gamma(counts + 1) - log_gamma(size - counts + 1)
    own_CA1, rest_CA1 = weights_CA[..., None], (total_C[:, None] - weights_CA)[..., None]
    chances = choices + log_gamma(own_CA1 + counts) + log_gamma(rest_CA1 + size - counts) - log_gamma(own_CA1)
    chances += log_gamma(total_C)[:, None, None] - log_gamma(rest_CA1) - log_gamma(total_C + size)[:, None, None]
    plugin_C = -(np.exp(chances) * x_log_x(counts / size)).sum(axis=(1, 2))
    found: Floats = true_C - plugin_C
    return found


def _model_free(counts_NA: Floats) -> tuple[Floats, Floats]:
    """The entropy of each prompt's actions: Grassberger's, and the jackknife's over actions."""
    sizes_N1 = counts_NA.sum(axis=1, keepdims=True)
    seen_NA = np.maximum(counts_NA, 1.0)
    sign_NA = np.where(counts_NA % 2 == 0, 0.5, -0.5)
    terms_NA = psi(seen_NA) + sign_NA * (psi((seen_NA + 1) / 2) - psi(seen_NA / 2))
    grassberger_N = np.log(sizes_N1[:, 0]) - (counts_NA * terms_NA).sum(axis=1) / sizes_N1[:, 0]
    # n log n of a row in which one action fewer was counted, for each action.
    logs_NA, fewer_NA = x_log_x(counts_NA), np.maximum(counts_NA - 1, 0.0)
    without_NA = logs_NA.sum(axis=1, keepdims=True) - logs_NA + x_log_x(fewer_NA)
    deleted_NA = np.log(sizes_N1 - 1) - without_NA / (sizes_N1 - 1)
    deleted_N = (counts_NA * deleted_NA).sum(axis=1) / sizes_N1[:, 0]
    jackknife_N = sizes_N1[:, 0] * _entropies(counts_NA) - (sizes_N1[:, 0] - 1) * deleted_N
    return grassberger_N, jackknife_N


def _entropies(counts: Floats) -> Floats:
    """The plug-in entropy of the counts along the last axis."""
    shares = counts / counts.sum(axis=-1, keepdims=True)
    found: Floats = -x_log_x(shares).sum(axis=-1)
    return found


def _means(rows_N: Floats, sizes_N: Floats) -> tuple[float, Floats]:
    """The mean over all actions, and without each prompt's."""
    total = float(rows_N @ sizes_N)
    return total / float(sizes_N.sum()), (total - rows_N * sizes_N) / (sizes_N.sum() - sizes_N)
