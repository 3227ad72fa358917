"""Statistics for few seeds: means, paired differences with an exact test, exact limits of counts.

Promise: a number that so few values cannot give is `None` with the reason, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from heedful.diagnostics.statistics.group_statistics import is_constant
from heedful.diagnostics.statistics.intervals import LEVEL, Interval, effective_clusters, mean_interval
from heedful.diagnostics.statistics.special import beta_quantile
from heedful.types import Metric

MOST_FLIPPED = 20
"""Seeds up to which all sign patterns are tried: 2^20, a second. Student's interval serves beyond."""


@dataclass(frozen=True, slots=True)
class Count:
    """A count of hits among trials, with exact limits."""

    hits: int
    of: int

    @property
    def limits(self) -> Interval | None:
        return clopper_pearson(self.hits, self.of) if self.of else None

    @property
    def metric(self) -> Metric:
        """As a rate; `None` where there was nothing to count."""
        limits = self.limits
        if limits is None:
            return Metric("count", None, 0, why="nothing to count")
        return Metric("count", self.hits / self.of, self.of, limits.low, limits.high)

    def __str__(self) -> str:
        limits = self.limits
        within = "" if limits is None else f" [{limits.low:.3f}, {limits.high:.3f}]"
        return f"{self.hits} of {self.of}{within}"


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """An arm minus its control, seed by seed."""

    mean: Metric
    """Mean difference with Student's interval, n pairs."""
    by_seed: Mapping[int, float]
    """The differences themselves."""
    p_value: float | None
    """p-value of the two-sided sign-flip test; `None` without a pair, or with too many for all patterns."""

    @property
    def clear(self) -> bool:
        """The interval leaves zero out."""
        return self.mean.low is not None and self.mean.high is not None and (self.mean.low > 0 or self.mean.high < 0)


def clopper_pearson(hits: int, of: int) -> Interval:
    """The exact 95% limits of a rate seen in `of` independent trials.

    Source: Clopper and Pearson 1934. Conservative: it covers the true rate in at least 95% of cases.
    """
    tail = (1 - LEVEL) / 2
    low = 0.0 if hits == 0 else beta_quantile(hits, of - hits + 1, tail)
    high = 1.0 if hits == of else beta_quantile(hits + 1, of - hits, 1 - tail)
    return Interval(low, high)


def mean_over(name: str, values: Sequence[float], missing: Sequence[str] = ()) -> Metric:
    """The mean of independent values with Student's interval; `missing` holds the reasons of those that are not there.

    Values that all agree give no interval: its width would be zero, which is not certainty.
    """
    lost = f"{len(missing)} missing: {'; '.join(dict.fromkeys(missing))}" if missing else ""
    if not values:
        return Metric(name, None, 0, why=lost or "no run is done")
    interval = mean_interval(values)
    if interval is None or is_constant(values):
        alone = "a single seed has no interval" if interval is None else "all seeds agree: no spread to take one from"
        return Metric(name, fmean(values), len(values), why="; ".join(filter(None, (alone, lost))))
    return Metric(name, fmean(values), len(values), *interval, lost, effective_clusters(values))


def paired_difference(
    name: str, arm: Mapping[int, float], control: Mapping[int, float], side: str = "arm"
) -> PairedDifference:
    """The arm minus the control over the seeds that both have. `side`: what one of the two is called."""
    by_seed = {seed: arm[seed] - control[seed] for seed in sorted(arm.keys() & control.keys())}
    lost = len(arm.keys() ^ control.keys())
    values = list(by_seed.values())
    reasons = [f"the other {side} has no value"] * lost
    mean = mean_over(name, values, reasons)
    if not values:
        mean = Metric(name, None, 0, why=f"no seed has a value in both {side}s")
    return PairedDifference(mean, by_seed, sign_flip_p(values))


def sign_flip_p(differences: Sequence[float]) -> float | None:
    """The share of sign patterns whose mean is at least as far from zero as the one seen; two-sided and exact.

    Valid if, without an effect, each difference is as likely to be negative as positive, whatever its distribution.
    With n pairs it is never below 2 / 2^n: 5 seeds cannot give less than 0.0625. Source: Fisher 1935.
    """
    count = len(differences)
    if not 1 <= count <= MOST_FLIPPED:
        return None
    values = np.asarray(differences, dtype=np.float64)
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    seen = abs(math.fsum(differences))
    # Sums of the same numbers in another order differ by rounding.
    return float(np.mean(np.abs(sums) >= seen - 1e-9 * max(1.0, float(np.abs(values).sum()))))
