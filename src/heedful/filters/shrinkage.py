"""Estimates of a task's variance from a few episodes, the other tasks of the step and the task's own past.

Pure functions of plain numbers, independent of the order of groups. More evidence about a task always moves its
estimate from the expectation for any task towards the observations of this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from heedful.diagnostics.statistics.beliefs import Belief
from heedful.diagnostics.statistics.group_statistics import sample_variance

Prior = Literal["jeffreys", "batch"]

JEFFREYS = (0.5, 1.0)
"""Beta(1/2, 1/2) as (mean, strength)."""


@dataclass(frozen=True, slots=True)
class Visit:
    """The statistics of one group that an estimate needs: the number of scored values, their sum and their spread."""

    count: int
    total: float
    squares: float
    """Sum of squared deviations from the group's mean."""
    binary: bool
    """All values are 0 or 1."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Visit:
        spread = sample_variance(values) * (len(values) - 1)
        return cls(len(values), math.fsum(values), spread, all(value in (0.0, 1.0) for value in values))


@dataclass(frozen=True, slots=True)
class Evidence:
    """A group's values together with values of earlier visits to its task. Older visits count less."""

    count: float
    total: float
    freedom: float
    squares: float
    binary: bool

    @classmethod
    def of(cls, values: Sequence[float], earlier: Sequence[Visit], discount: float) -> Evidence:
        """`earlier`: visits to the same task, oldest first. The k-th last of them counts `discount`^k."""
        visits = [Visit.of(values), *reversed(earlier)]
        weighted = [(discount**age, visit) for age, visit in enumerate(visits)]
        return cls(
            math.fsum(weight * visit.count for weight, visit in weighted),
            math.fsum(weight * visit.total for weight, visit in weighted),
            math.fsum(weight * max(visit.count - 1, 0) for weight, visit in weighted),
            math.fsum(weight * visit.squares for weight, visit in weighted),
            all(visit.binary for visit in visits),
        )


def expected_variances(
    values_PG: Sequence[Sequence[float]],
    earlier_PV: Sequence[Sequence[Visit]],
    prior: Prior = "jeffreys",
    discount: float = 0.5,
) -> list[float]:
    """The posterior mean of each group's variance, from its scored values and earlier visits to its task.

    `values_PG`: at least two scored values per group. `earlier_PV`: per group the earlier visits to its task, oldest
    first. Empty where there were none.

    Where all values are 0 or 1: p (1 - p) under a Beta prior on the chance p of a 1. `jeffreys`: Beta(1/2, 1/2).
    `batch`: fitted to the groups of this step by the analysis-of-variance estimator of the beta-binomial. A step whose
    groups do not differ by more than chance gives all of them one value.

    Otherwise: the variance under an inverse-gamma prior, fitted to the sample variances of this step by their first two
    moments, for either `prior`: (d0 m + sum of squares) / (d0 + degrees of freedom), where m is their mean. The scatter
    of sample variances by chance is computed for normal values. Source: the idea is that of limma (Smyth 2004,
    doi:10.2202/1544-6115.1027). Deviation: fitted to moments of the variances, not of their logarithms, since constant
    groups have none.
    """
    evidence_P = [Evidence.of(values, earlier, discount) for values, earlier in zip(values_PG, earlier_PV, strict=True)]
    if all(evidence.binary for evidence in evidence_P):
        return _chances(evidence_P, *(JEFFREYS if prior == "jeffreys" else fit_beta(values_PG)))
    return _scales(evidence_P, *fit_inverse_gamma(values_PG))


def fit_beta(values_PG: Sequence[Sequence[float]]) -> tuple[float, float]:
    """(mean, strength) of the Beta prior behind groups of 0/1 values: the analysis-of-variance estimator.

    The prior is Beta(mean strength, (1 - mean) strength), so the strength counts like episodes. It is infinite where
    the groups differ by no more than chance. Jeffreys' prior is returned where a fit is impossible: fewer than two
    groups, groups of one, or all values equal.
    """
    counts = [len(values) for values in values_PG]
    total, groups = sum(counts), len(counts)
    means = [fmean(values) for values in values_PG]
    mean = math.fsum(n * p for n, p in zip(counts, means, strict=True)) / total if total else 0.0
    if groups < 2 or total == groups or mean in (0.0, 1.0):
        return JEFFREYS
    between = math.fsum(n * (p - mean) ** 2 for n, p in zip(counts, means, strict=True)) / (groups - 1)
    within = math.fsum(n * p * (1 - p) for n, p in zip(counts, means, strict=True)) / (total - groups)
    size = (total - math.fsum(n * n for n in counts) / total) / (groups - 1)
    correlation = (between - within) / (between + (size - 1) * within)
    return mean, (1 / correlation - 1 if correlation > 0 else math.inf)


def fit_inverse_gamma(values_PG: Sequence[Sequence[float]]) -> tuple[float, float]:
    """(d0, m): the mean m of the sample variances, and how many degrees of freedom it counts for as a prior.

    With v the scatter of the variances beyond chance, d0 = 2 (m^2 / v + 1), which is infinite where v is 0. Both are
    computed relative to m, because squares of large variances overflow.
    """
    estimates = [(sample_variance(values), len(values) - 1) for values in values_PG]
    freedom = sum(d for _, d in estimates)
    mean = math.fsum(d * variance for variance, d in estimates) / freedom
    if not mean:
        return math.inf, mean
    # For normal values: E[s^4] = sigma^4 (1 + 2 / d).
    second = math.fsum(d * (variance / mean) ** 2 / (1 + 2 / d) for variance, d in estimates) / freedom
    return (2 * (1 / (second - 1) + 1) if second > 1 else math.inf), mean


def _chances(evidence_P: Sequence[Evidence], mean: float, strength: float) -> list[float]:
    if math.isinf(strength):
        return [mean * (1 - mean)] * len(evidence_P)
    return [
        Belief(mean * strength + evidence.total, (1 - mean) * strength + evidence.count - evidence.total).variance
        for evidence in evidence_P
    ]


def _scales(evidence_P: Sequence[Evidence], freedom: float, mean: float) -> list[float]:
    if math.isinf(freedom):
        return [mean] * len(evidence_P)
    return [(freedom * mean + evidence.squares) / (freedom + evidence.freedom) for evidence in evidence_P]
