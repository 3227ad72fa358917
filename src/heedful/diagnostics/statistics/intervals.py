"""95% intervals for means of clustered and of binary values.

Members of one task, and thoughts under one prompt, are never counted as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from heedful.diagnostics.statistics.group_statistics import LARGEST, within_floats

LEVEL = 0.95

_ROUNDING = 1e-6
"""Sums of successes are whole numbers but for rounding."""


class Interval(NamedTuple):
    low: float
    high: float

    def cut(self, floor: float = -math.inf, ceiling: float = math.inf) -> Interval:
        """The part within the range that the quantity can take."""
        return Interval(min(max(self.low, floor), ceiling), max(min(self.high, ceiling), floor))


@within_floats()
def wilson(successes: float, n: int) -> Interval:
    """Wilson's score interval for a rate seen in n independent trials. It has a width and lies within [0, 1].

    Source: Wilson 1927, without continuity correction. Raises ValueError unless 0 <= successes <= n and n >= 1.
    """
    if not (1 <= n < math.inf and 0 <= successes <= n):
        raise ValueError(f"Expected 0 <= successes <= n with a finite n >= 1, found {successes} successes of {n}.")
    return _wilson(successes, n, float(ndtri((1 + LEVEL) / 2)))


def _wilson(successes: float, n: float, quantile: float) -> Interval:
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
    """Student's interval for the mean of independent values; `None` for fewer than two.

    Raises ValueError for NaN, and for values that are infinite or above 1e150 in size.
    """
    return cluster_interval(values, [1.0] * len(values))


def cluster_interval(sums_C: Sequence[float], counts_C: Sequence[float]) -> Interval | None:
    """Interval of the mean of all values, sum(sums) / sum(counts), where values of one cluster are correlated.

    Delete-one-cluster jackknife with Student's t at C - 1 degrees of freedom. With clusters of equal size exactly the
    t interval over the cluster means. Clusters without values are left out; `None` for fewer than two clusters, and
    where all others are nothing beside one. Raises ValueError for NaN, for sums and counts that are infinite or above
    1e150 in size, and for negative counts.
    """
    value, deleted_C = _pooled(sums_C, counts_C)
    return None if len(deleted_C) < 2 else jackknife_interval(value, deleted_C)


def cluster_rate_interval(sums_C: Sequence[float], counts_C: Sequence[float]) -> Interval | None:
    """Interval of a rate, sum(sums) / sum(counts), where the trials of one cluster are correlated (`rate_interval`).

    Clusters without trials are left out; `None` for fewer than two clusters. Raises ValueError as `cluster_interval`
    does, and for a cluster with more successes than trials.
    """
    rate, deleted_C = _pooled(sums_C, counts_C)
    for successes, trials in zip(sums_C, counts_C, strict=True):
        if trials and not (-_ROUNDING <= successes <= trials + _ROUNDING and trials >= 1):
            raise ValueError(
                f"Expected from 0 successes to as many as trials in each cluster, found {successes} of {trials}."
            )
    return None if len(deleted_C) < 2 else rate_interval(rate, deleted_C, math.fsum(counts_C))


def deleted_means(sums_C: Sequence[float], counts_C: Sequence[float]) -> npt.NDArray[np.float64]:
    """The mean of all values without each cluster that has values; empty for fewer than two such clusters."""
    return _pooled(sums_C, counts_C)[1]


@within_floats()
def _pooled(sums_C: Sequence[float], counts_C: Sequence[float]) -> tuple[float, npt.NDArray[np.float64]]:
    """The mean of all values, and without each cluster that has values."""
    if len(sums_C) != len(counts_C):
        raise ValueError(
            f"Expected a sum and a count per cluster, found {len(sums_C)} sums and {len(counts_C)} counts."
        )
    counts = _finite(counts_C, least=0.0)
    filled = counts > 0
    counts, sums = counts[filled], _finite(sums_C)[filled]
    total, count = math.fsum(sums), math.fsum(counts)
    if len(counts) < 2:
        return (total / count if count else math.nan), np.empty(0)
    with np.errstate(all="ignore"):
        deleted_C = (total - sums) / (count - counts)
    # Beside a count of 1e20 a count of 1 is nothing: there is one cluster.
    return total / count, deleted_C if np.isfinite(deleted_C).all() else np.empty(0)


def _finite(numbers_C: Sequence[float], least: float = -LARGEST) -> npt.NDArray[np.float64]:
    """Numbers, one per cluster, as an array. Raises ValueError for others than finite ones of at least `least`."""
    try:
        numbers = np.asarray(numbers_C, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty((0, 0))
    if numbers.ndim != 1 or not ((numbers >= least) & (numbers <= LARGEST)).all():
        raise ValueError(
            f"Expected a list of finite numbers from {least:g} to {LARGEST:g}, one per value or cluster, found "
            f"{numbers_C!r:.100}. Leave out what is missing."
        )
    return numbers


@within_floats()
def jackknife_interval(value: float, deleted_C: npt.NDArray[np.float64], degrees: float | None = None) -> Interval:
    """Interval of a statistic, from its C >= 2 values with one cluster deleted each.

    Student's t with `degrees` of freedom; `None`: C - 1. The statistic itself is the centre: no correction of bias.
    Source: Tukey 1958. The standard error is sqrt((C - 1) / C sum (deleted - mean deleted)^2). Raises ValueError for
    fewer than two clusters, for numbers that are not finite or too large, and for degrees that are not above 0.
    """
    clusters = _several(deleted_C)
    with np.errstate(all="ignore"):
        off_C = deleted_C - deleted_C.mean()
        largest = float(np.abs(off_C).max())
        unit = largest if largest > LARGEST else 1.0  # a larger number has no square
        error = unit * math.sqrt((clusters - 1) / clusters * float(np.sum((off_C / unit) ** 2)))
    half = _quantile(degrees or clusters - 1) * error
    interval = Interval(value - half, value + half)
    if not all(map(math.isfinite, interval)):
        raise ValueError(
            f"Expected a finite value, finite values without each cluster and degrees above 0, found {value!s:.80}, "
            f"{deleted_C!s:.80} and {degrees!s:.80}."
        )
    return interval


def rate_interval(rate: float, deleted_C: npt.NDArray[np.float64], trials: float) -> Interval:
    """Interval of a rate whose trials are correlated within clusters, from its C >= 2 values with one deleted each.

    Wilson's interval for as many independent trials as would give the jackknife's standard error, but never more than
    `trials`. The quantile is Student's t with C - 1 degrees of freedom. Source: Rao and Scott 1992 (effective number
    of trials).
    The jackknife's own interval is too narrow where the rate is near 0 or 1. Raises ValueError for fewer than two
    clusters.
    """
    clusters = _several(deleted_C)
    error2 = (clusters - 1) / clusters * float(np.sum((deleted_C - deleted_C.mean()) ** 2))
    rate = min(max(rate, 0.0), 1.0)
    effective = min(trials, rate * (1 - rate) / error2) if error2 > 0 else trials
    # At the ends nothing is known of the correlation: each cluster is one trial.
    effective = effective if 0 < rate < 1 else min(trials, clusters)
    return _wilson(rate * effective, effective, _quantile(clusters - 1))


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
    Raises ValueError for fewer than two clusters.
    """
    clusters = _several(uppers_C)
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


def _several(deleted_C: npt.NDArray[np.float64]) -> int:
    """The number of clusters."""
    shape = np.shape(deleted_C)
    if len(shape) != 1 or shape[0] < 2:
        found = f"{shape[0]} of them" if len(shape) == 1 else f"an array of the shape {shape}"
        raise ValueError(f"Expected the statistic without each of at least 2 clusters, found {found}.")
    return shape[0]


def _quantile(degrees: float) -> float:
    """The half-width of a 95% interval in standard errors: Student's t."""
    return float(stdtrit(degrees, (1 + LEVEL) / 2))
