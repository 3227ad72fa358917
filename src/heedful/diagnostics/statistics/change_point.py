"""A sequential test of a series against its own past, with a known rate of false alarms.

A pure function of the values so far. On a series without drift the statistic reaches 5 within 100 values in fewer than
2 of 1,000 series. This holds for any level and scale, and up to the correlation of neighbours that the design allows.
`tests/diagnostics/statistics/test_change_point.py` simulates it, and designs that estimate the correlation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.statistics.special import normal_quantile, student_share
from heedful.types import Metric

Direction = Literal["up", "down"]
Floats = npt.NDArray[np.float64]
_NORMAL = 1.959964
"""Half-widths of 95% intervals per standard error. Student's quantiles are larger, so errors come out too large."""
_MOST = 1000.0
_MOST_CORRELATED = 0.97
"""No correlation is estimated above it: 64 values of one that is higher hardly differ from a trend."""
_TRUST = 0.25
"""No value is trusted closer than this part of the change that would matter: its standard error is at least that."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a series."""

    step: int
    value: float
    variance: float | None
    """Variance of the value, from its own interval; `None` where it has none."""
    n: int | None = None

    @classmethod
    def of(cls, step: int, metric: Metric) -> Point | None:
        """`None` for a missing value, for a label, and for a value that is not finite."""
        value = metric.number
        if value is None or not math.isfinite(value):
            return None
        if metric.low is None or metric.high is None:
            return cls(step, value, None, metric.n)
        # One side may have been cut at the end of the range: the wider one counts.
        error = max(metric.high - value, value - metric.low) / _NORMAL
        return cls(step, value, error * error, metric.n)


@dataclass(frozen=True, slots=True)
class Design:
    """What kind of change a test looks for, and how sure it wants to be."""

    direction: Direction
    least: float
    """The smallest change that matters."""
    relative: bool
    """`least` is a part of the level before, not an amount."""
    threshold: float
    """Standard errors."""
    baseline: int
    """Fewest values before a change."""
    confirm: int
    """Fewest values after it."""
    correlation: float
    """Largest correlation of neighbouring values while nothing happens; 0 = independent."""
    estimated: bool = False
    """The series may be more correlated than that: its own correlation counts where it is higher."""
    floor: float = 0.0
    """The amount that matters at least, where `least` is a part of a level that may be next to nothing."""

    def matters(self, before: float, now: float) -> bool:
        """Whether `now` is worse than `before` by at least `least`."""
        worse = now - before if self.direction == "up" else before - now
        return worse >= self.amount(before)

    def amount(self, before: float) -> float:
        return max(self.least * abs(before), self.floor) if self.relative else self.least


@dataclass(frozen=True, slots=True)
class Shift:
    """A change that was found: two neighbouring stretches of values with different means."""

    before: float
    """Mean of the stretch before."""
    first: int
    """The step at which that stretch begins."""
    last: int
    """The step of its last value."""
    after: float
    """Mean of all values since."""
    low: float
    """95% interval of that mean."""
    high: float
    since: int
    """The step of the first value after the change."""
    z: float
    """Standard errors between the two means, at most 1,000."""


def largest_shift(points: Sequence[Point], design: Design) -> Shift | None:
    """The clearest change that has lasted until now, of those that matter; `None` if there is none at all.

    Compares the mean of all values since s with the mean of a stretch that ends right before s, for every s and every
    such stretch: at least `baseline` values before, `confirm` after. So a fall is seen from the best that the series
    has held, not from where it began, and a slow fall as well as a sudden one. The shift returned is that with the
    largest z among those in which the mean since, and each of the last `confirm` values, are worse by at least
    `least` (a burst that is over is no change). Whether z reaches the threshold is for the caller to see.

    The variance of a value is the mean over their own intervals: of those before for the mean before. For the mean
    after it is that of all or that of those after, whichever is larger: values grow noisier as they get worse, and a
    few noisy values must not pass for precise because many quiet ones came before them (Welch 1947). It is never taken
    below the scatter of the stretch before (mean squared successive differences, von Neumann 1941), nor after the
    change below that before. Where values have no intervals only the scatter is left, and z is translated from
    Student's t of its degrees of freedom.

    Source: the generalised likelihood ratio for a change of mean (Siegmund and Venkatraman 1995), with the level before
    the change unknown and taken from a stretch of its own. Deviation: with `estimated` the correlation is that of the
    values around the two levels that fit them best, corrected for its bias.
    """
    count = len(points)
    if count < design.baseline + design.confirm:
        return None
    value = np.array([point.value for point in points])
    total = np.concatenate([[0.0], np.cumsum(value)])
    split = np.arange(design.baseline, count - design.confirm + 1)[:, None]
    start = np.arange(split.max() - design.baseline + 1)[None, :]
    before_n, after_n = np.maximum(split - start, 1), count - split
    before, after = (total[split] - total[start]) / before_n, (total[count] - total[split]) / after_n
    worse = after - before if design.direction == "up" else before - after
    matters = np.full_like(before, design.least)
    if design.relative:
        matters = np.maximum(design.least * np.abs(before), design.floor)
    last = value[count - design.confirm :]
    latest = last.min() - before if design.direction == "up" else before - last.max()
    eligible = (start <= split - design.baseline) & (worse > 0) & (worse >= matters) & (latest >= matters)
    if not eligible.any():  # so it is of most series, and their variances need not be known
        return None
    correlation = max(design.correlation, _correlation(value, design) if design.estimated else 0.0)
    (old, new), freedom = _variances(points, start, split, (_TRUST * matters) ** 2, correlation)
    of_means = _variance_of_means(count, correlation)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = worse / np.sqrt(old * of_means[before_n] + new * of_means[after_n])
    if freedom is not None:
        shares = student_share(np.broadcast_to(freedom, z.shape)[eligible], -z[eligible])
        z[eligible] = [-normal_quantile(share) for share in shares.tolist()]
    row, column = np.unravel_index(int(np.argmax(np.where(eligible, z, -np.inf))), z.shape)
    first, since = int(start[0, column]), int(split[row, 0])
    mean, half = float(after[row, 0]), _NORMAL * math.sqrt(float(new[row, column] * of_means[after_n[row, 0]]))
    return Shift(
        float(before[row, column]),
        points[first].step,
        points[since - 1].step,
        mean,
        mean - half,
        mean + half,
        points[since].step,
        min(float(z[row, column]), _MOST),
    )


def _correlation(value: Floats, design: Design) -> float:
    """The correlation of neighbouring values around two levels, those that leave the least squares.

    Two fitted means bias it by about -(2 + 4 r) / n (twice Kendall 1954, which has one), and that is added. So a
    real change of level does not count as correlation.
    """
    count = len(value)
    value = value - value.mean()
    split = np.arange(design.baseline, count - design.confirm + 1)
    before, total = np.cumsum(value)[split - 1], value.sum()
    place = int(split[np.argmax(before**2 / split + (total - before) ** 2 / (count - split))])
    rest = np.concatenate([value[:place] - value[:place].mean(), value[place:] - value[place:].mean()])
    squares = float(rest @ rest)
    if squares == 0.0:
        return 0.0
    found = (float(rest[1:] @ rest[:-1]) - float(rest[place] * rest[place - 1])) / squares
    return min(max(found + (2 + 4 * found) / count, 0.0), _MOST_CORRELATED)


def _variances(
    points: Sequence[Point],
    start: npt.NDArray[np.intp],
    split: npt.NDArray[np.intp],
    least: Floats,
    correlation: float,
) -> tuple[tuple[Floats, Floats], Floats | None]:
    """The variance of one value before and after, for each pair of stretches, and degrees of freedom where only
    scatter tells it."""
    value = np.array([point.value for point in points])
    squares = np.concatenate([[0.0], np.cumsum(np.diff(value) ** 2)])
    steps = np.maximum(split - 1 - start, 1)
    scatter = np.maximum(squares[split - 1] - squares[np.minimum(start, split - 1)], 0.0)
    before = np.maximum(scatter / (2 * steps * (1 - correlation)), least)
    known = np.array([np.nan if point.variance is None else point.variance for point in points])
    if 2 * np.isnan(known).sum() > len(known):
        # Successive differences are correlated: k of them are worth about 2k / 3 independent ones.
        return (before, before), np.maximum(2 * steps / 3, 1.0)
    sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(known))])
    counts = np.concatenate([[0], np.cumsum(~np.isnan(known))])
    before = np.maximum(before, (sums[split] - sums[start]) / np.maximum(counts[split] - counts[start], 1))
    both = (sums[-1] - sums[start]) / np.maximum(counts[-1] - counts[start], 1)
    after = np.maximum(both, (sums[-1] - sums[split]) / np.maximum(counts[-1] - counts[split], 1))
    return (before, np.maximum(before, after)), None


def _variance_of_means(count: int, correlation: float) -> Floats:
    """The variance of the mean of k = 0, 1, ..., `count` neighbouring values of variance 1 (k = 0: infinite).

    Of a stationary AR(1) process: (1 + 2 sum over j < k of (1 - j/k) c^j) / k.
    """
    powers = correlation ** np.arange(1, count + 1)
    sums, weighted = np.cumsum(powers), np.cumsum(powers * np.arange(1, count + 1))
    k = np.arange(1, count + 1)
    inner_sums, inner_weighted = np.concatenate([[0.0], sums[:-1]]), np.concatenate([[0.0], weighted[:-1]])
    return np.concatenate([[np.inf], (1 + 2 * (inner_sums - inner_weighted / k)) / k])
