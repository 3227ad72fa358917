"""95% intervals for means of clustered and of binary values.

Members of one task, and thoughts under one prompt, are never counted as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.statistics.special import normal_quantile, student_quantile

LEVEL = 0.95


class Interval(NamedTuple):
    low: float
    high: float

    def cut(self, floor: float = -math.inf, ceiling: float = math.inf) -> Interval:
        """The part within the range that the quantity can take."""
        return Interval(min(max(self.low, floor), ceiling), max(min(self.high, ceiling), floor))


def wilson(successes: float, n: float, quantile: float = normal_quantile((1 + LEVEL) / 2)) -> Interval:
    """Wilson's score interval for a rate seen in n independent trials. It has a width and lies within [0, 1].

    Source: Wilson 1927, without continuity correction. `successes` need not be whole. `quantile`: half-width of the
    interval in standard errors.
    """
    z2, rate = quantile**2, successes / n
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (rate * (1 - rate) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # At the ends the formula gives 0 and 1 exactly but for rounding.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low, high)


def effective_clusters(values_C: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """How many of C clusters decide the width of a jackknife interval: (sum d^2)^2 / sum d^4 of their deviations d.

    `values_C`: the clusters' own values, or the statistic without each. The result is k where k of many clusters differ
    from the rest, and about C / 3 for normal values. It is 0 where all agree, and for fewer than two clusters. An
    interval of few effective clusters is too narrow: in another sample, other clusters would differ.
    """
    deviations = np.asarray(values_C, dtype=np.float64)
    if len(deviations) < 2:
        return 0.0
    deviations = np.abs(deviations - deviations.mean())
    largest = float(deviations.max(initial=0.0))
    if not (math.isfinite(largest) and largest > 0):
        return 0.0
    squares = (deviations / largest) ** 2
    return round(float(squares.sum() ** 2 / (squares**2).sum()), 2)


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Student's interval for the mean of independent values; `None` for fewer than two."""
    return cluster_interval(values, [1.0] * len(values))


def cluster_interval(sums_C: Sequence[float], counts_C: Sequence[float]) -> Interval | None:
    """Interval of the mean of all values, sum(sums) / sum(counts), where values of one cluster are correlated.

    Delete-one-cluster jackknife with Student's t at C - 1 degrees of freedom. With clusters of equal size exactly the
    t interval over the cluster means. Clusters without values are left out; `None` for fewer than two clusters.
    """
    deleted_C = deleted_means(sums_C, counts_C)
    return jackknife_interval(math.fsum(sums_C) / math.fsum(counts_C), deleted_C) if len(deleted_C) else None


def cluster_rate_interval(sums_C: Sequence[float], counts_C: Sequence[float]) -> Interval | None:
    """Interval of a rate, sum(sums) / sum(counts), where the trials of one cluster are correlated (`rate_interval`).

    Clusters without trials are left out; `None` for fewer than two clusters.
    """
    deleted_C, trials = deleted_means(sums_C, counts_C), math.fsum(counts_C)
    return rate_interval(math.fsum(sums_C) / trials, deleted_C, trials) if len(deleted_C) else None


def deleted_means(sums_C: Sequence[float], counts_C: Sequence[float]) -> npt.NDArray[np.float64]:
    """The mean of all values without each cluster that has values; empty for fewer than two such clusters."""
    counts = np.asarray(counts_C, dtype=np.float64)
    filled = counts > 0
    counts, sums = counts[filled], np.asarray(sums_C, dtype=np.float64)[filled]
    if len(counts) < 2:
        return np.empty(0)
    means_C: npt.NDArray[np.float64] = (math.fsum(sums) - sums) / (math.fsum(counts) - counts)
    return means_C


def jackknife_interval(value: float, deleted_C: npt.NDArray[np.float64], degrees: float | None = None) -> Interval:
    """Interval of a statistic, from its C >= 2 values with one cluster deleted each.

    Student's t with `degrees` of freedom; `None`: C - 1. The statistic itself is the centre: no correction of bias.
    Source: Tukey 1958. The standard error is sqrt((C - 1) / C sum (deleted - mean deleted)^2).
    """
    clusters = len(deleted_C)
    error = math.sqrt((clusters - 1) / clusters * float(np.sum((deleted_C - deleted_C.mean()) ** 2)))
    half = _quantile(degrees or clusters - 1) * error
    return Interval(value - half, value + half)


def rate_interval(rate: float, deleted_C: npt.NDArray[np.float64], trials: float) -> Interval:
    """Interval of a rate whose trials are correlated within clusters, from its C >= 2 values with one deleted each.

    Wilson's interval for as many independent trials as would give the jackknife's standard error, but never more than
    `trials`. The quantile is Student's t with C - 1 degrees of freedom. Source: Rao and Scott 1992 (effective number
    of trials). The jackknife's own interval is too narrow where the rate is near 0 or 1.
    """
    clusters = len(deleted_C)
    error2 = (clusters - 1) / clusters * float(np.sum((deleted_C - deleted_C.mean()) ** 2))
    rate = min(max(rate, 0.0), 1.0)
    effective = min(trials, rate * (1 - rate) / error2) if error2 > 0 else trials
    # At the ends nothing is known of the correlation: each cluster is one trial.
    effective = effective if 0 < rate < 1 else min(trials, clusters)
    return wilson(rate * effective, effective, _quantile(clusters - 1))


def ratio_interval(
    upper: float,
    lower: float,
    uppers_C: npt.NDArray[np.float64],
    lowers_C: npt.NDArray[np.float64],
    degrees: float | None = None,
) -> Interval | None:
    """Interval of upper / lower, from both values and from those with one of C >= 2 clusters deleted each.

    It holds each ratio r for which the jackknife interval of upper - r lower contains zero. `None` where the interval
    of `lower` reaches zero, because every ratio is possible then. Source: Fieller 1954, with the jackknife's variances.
    """
    clusters = len(uppers_C)
    deviations = np.stack([uppers_C - uppers_C.mean(), lowers_C - lowers_C.mean()])
    scale = _quantile(degrees or clusters - 1) ** 2 * (clusters - 1) / clusters
    (of_upper, shared), (_, of_lower) = (scale * (deviations @ deviations.T)).tolist()
    # The r between the roots of (lower^2 - of_lower) r^2 - 2 (upper lower - shared) r + (upper^2 - of_upper).
    square = lower * lower - of_lower
    if lower <= 0 or square <= 0:
        return None
    middle = upper * lower - shared
    half = math.sqrt(max(0.0, middle * middle - square * (upper * upper - of_upper)))
    return Interval((middle - half) / square, (middle + half) / square)


def _quantile(degrees: float) -> float:
    """The half-width of a 95% interval in standard errors: Student's t."""
    return student_quantile(degrees, (1 + LEVEL) / 2)
