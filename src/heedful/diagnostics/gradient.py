"""Signal and noise of the policy gradient by reward variance: `gradient/bucket_<b>/...` and `gradient/all/...`.

The input is the inner products of the groups' gradients. A squared signal is estimated without the noise that
squaring a norm adds. It may be negative and is never clipped. Intervals are taken over groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from heedful.statistics.intervals import jackknife_interval, ratio_interval
from heedful.types import Metric

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

TASK_PARTS = ("task", "task_undivided", "task_divided")
"""The run's own estimate; that of R - mean of the group; the same divided by the group's standard deviation."""
PARTS = (*TASK_PARTS, "kl", "entropy")
PAIRS = (("task", "kl"), ("task", "entropy"), ("kl", "entropy"))
"""Pairs of parts whose cosine is measured."""
GRAMS = (*((part, part) for part in PARTS), *PAIRS)

_TOO_FEW = "fewer than two groups"
_EMPTY = "no group has such a variance: rewards with few values leave buckets empty"
_SILENT = "the gradient is zero in every group"


@dataclass(frozen=True, slots=True)
class Side:
    """P groups as some of their members show them: all of the members, or one half of each group's.

    A group's gradient is normalised so that the plain mean over the P groups is the gradient of the loss on these
    members. With groups of one size it is the mean over the group's members; `_P` values that are called means are
    normalised alike. A group that cannot be measured has NaN as its variance.
    """

    grams: Mapping[tuple[str, str], Floats]
    """For each pair in `GRAMS`: inner products of the groups' gradients of these parts, P x P."""
    prompt_products: Mapping[str, Floats]
    """Part -> per group the inner product of the gradients of two halves of these members, each half with a baseline of
    its own. NaN where a half would have fewer than two members."""
    unbiased_products_P: Floats
    """The same for `task_undivided`, each half's gradient times h / (h - 1) for its h members: what subtracting a mean
    with the member itself in it takes away. Then each estimates the prompt's expected gradient without bias."""
    variance_P: Floats
    """Sample variance of the members' rewards, 1/(h - 1)."""
    deviation2_P: Floats
    """Mean squared deviation of the rewards from their mean, 1/h."""
    score2_P: Floats
    """Mean squared norm of a trajectory's score."""


@dataclass(frozen=True, slots=True)
class GradientNoise:
    """The same groups as a whole and in halves; member by member the halves are disjoint."""

    whole: Side
    halves: tuple[Side, Side]


def gradient_metrics(
    measured: GradientNoise, buckets: int, coefficients: Mapping[str, float] | None = None
) -> list[Metric]:
    """Every `gradient/<b>/...` of all groups together and of each bucket of reward variance.

    `coefficients` of the loss: a part with one above 0 also has its `<part>_weighted_norm`. Everything else of `kl` and
    `entropy` is of a coefficient of 1.

    `all` is read from whole groups. A bucket is chosen on one half of a group's members and measured on the other,
    both ways, so noise in the rewards cannot choose the noise in the gradient. A bucket therefore shows gradients of
    half as many members. Where one way finds fewer than three groups and the other has more, only the other counts
    (but for the variances). n counts groups.
    """
    whole, halves = measured.whole, measured.halves
    metrics = _scope_metrics("gradient/all", _Scope((whole,), (~np.isnan(whole.variance_P),)), None)
    numbers = bucket_numbers([half.variance_P for half in halves], buckets)
    # A half is sorted by the other one.
    sorted_by, numbers = [halves[1].variance_P, halves[0].variance_P], numbers[::-1]
    for bucket in range(buckets):
        inside = tuple(number_P == bucket for number_P in numbers)
        metrics += _scope_metrics(f"gradient/bucket_{bucket}", _Scope(halves, inside), sorted_by)
    return metrics + _weighted(metrics, coefficients or {})


def _weighted(metrics: Sequence[Metric], coefficients: Mapping[str, float]) -> list[Metric]:
    """The norms of parts as the run's own loss has them."""
    found = []
    for part, coefficient in coefficients.items():
        for metric in metrics if coefficient > 0 else ():
            if metric.name.endswith(f"/{part}_norm"):
                value, low, high = (
                    None if each is None else coefficient * float(each)
                    for each in (metric.value, metric.low, metric.high)
                )
                name = metric.name.replace(f"{part}_norm", f"{part}_weighted_norm")
                found.append(replace(metric, name=name, value=value, low=low, high=high))
    return found


def bucket_numbers(variances: Sequence[Floats], buckets: int) -> list[npt.NDArray[np.int64]]:
    """The bucket of each variance: 0 = exactly zero, 1 and up = quantiles of the others. -1 where it is NaN.

    Constant groups are a bucket of their own: they are often many, and they are the ones a filter drops. Of n other
    variances one with l below it and e equal to it (itself included) falls into quantile (l + e/2) / n, so equal
    variances share a bucket and rewards with few values leave buckets empty. No tie is broken by chance. The quantiles
    are those of all the given arrays together (of both halves of the members), so that one variance means one bucket.

    Raises ValueError for fewer than two buckets.
    """
    if buckets < 2:
        raise ValueError(f"Expected at least 2 buckets (one is for constant groups), found {buckets}.")
    pooled = np.concatenate(list(variances))
    spread = np.sort(pooled[pooled > 0])
    numbers = []
    for variance_P in variances:
        below_P = np.searchsorted(spread, variance_P, side="left")
        up_to_P = np.searchsorted(spread, variance_P, side="right")
        quantile_P = (below_P + up_to_P) / (2 * max(len(spread), 1))
        number_P = 1 + np.minimum(((buckets - 1) * quantile_P).astype(np.int64), buckets - 2)
        number_P[variance_P == 0] = 0
        number_P[np.isnan(variance_P)] = -1
        numbers.append(number_P)
    return numbers


def signal2(gram_PP: Floats) -> float:
    """The squared norm of the expected gradient: the mean inner product over all pairs of different groups.

    That is the average, over all ways to split the groups into two disjoint halves, of the inner product of the
    halves' mean gradients: each pair lands in different halves equally often. No group meets its own noise, so the
    estimate is unbiased; it may be negative. Needs two groups.
    """
    count = len(gram_PP)
    return float((gram_PP.sum() - np.trace(gram_PP)) / (count * (count - 1)))


def noise2(gram_PP: Floats) -> float:
    """The trace of the covariance of the mean gradient over P groups: sum of |g - mean|^2 / (P (P - 1)), unbiased.

    `signal2` and `noise2` add up to the squared norm of the mean gradient.
    """
    count = len(gram_PP)
    return float((np.trace(gram_PP) - gram_PP.sum() / count) / (count * (count - 1)))


@dataclass(frozen=True, slots=True)
class _Scope:
    """Some groups on one or two sides. Sums over them are [side, 1 + J]: of all, then with each of J groups left out.

    A group that is on both sides is left out of both.
    """

    sides: tuple[Side, ...]
    inside: tuple[Booleans, ...]
    """Per side, which of the P groups belong to the scope."""

    @property
    def groups(self) -> npt.NDArray[np.int64]:
        """The J groups that are on any side."""
        groups: npt.NDArray[np.int64] = np.flatnonzero(np.any(self.inside, axis=0))
        return groups

    def filled(self, least: int) -> _Scope:
        """Only the sides with at least `least` groups."""
        kept = [number for number, inside_P in enumerate(self.inside) if inside_P.sum() >= least]
        return _Scope(tuple(self.sides[number] for number in kept), tuple(self.inside[number] for number in kept))

    def counts(self) -> Floats:
        return self.sums([np.ones(len(inside_P)) for inside_P in self.inside])

    def sums(self, values: Sequence[Floats]) -> Floats:
        """Sums of a value that each group has on each side."""
        rows = []
        for inside_P, values_P in zip(self.inside, values, strict=True):
            counted_P = np.where(inside_P, values_P, 0.0)
            rows.append(_left_out(counted_P.sum(), counted_P[self.groups]))
        return np.array(rows)

    def means(self, values: Sequence[Floats]) -> Floats:
        """Mean of a value over the groups of both sides for which it is known; NaN if for none."""
        known = [~np.isnan(values_P) for values_P in values]
        totals = self.sums([np.where(known_P, values_P, 0.0) for known_P, values_P in zip(known, values, strict=True)])
        counts = self.sums([known_P.astype(np.float64) for known_P in known])
        return _ratio(totals.sum(axis=0), counts.sum(axis=0))

    def products(self, pair: tuple[str, str]) -> tuple[Floats, Floats]:
        """Sums of the inner products of all pairs of groups, and of each group with itself."""
        totals, own = [], []
        for side, inside_P in zip(self.sides, self.inside, strict=True):
            gram_PP = np.where(inside_P[:, None] & inside_P, side.grams[pair], 0.0)
            self_P = np.diag(gram_PP)
            with_it_P = gram_PP.sum(axis=0) + gram_PP.sum(axis=1) - self_P
            totals.append(_left_out(gram_PP.sum(), with_it_P[self.groups]))
            own.append(_left_out(self_P.sum(), self_P[self.groups]))
        return np.array(totals), np.array(own)

    def product_of_means(self, pair: tuple[str, str]) -> Floats:
        """The inner product of the mean gradients, mean over the sides: `[1 + J]`."""
        means: Floats = (self.products(pair)[0] / self.counts() ** 2).mean(axis=0)
        return means


def _left_out(total: float, shares_J: Floats) -> Floats:
    """The total, then the total without each share."""
    return np.concatenate([[total], total - shares_J])


def _ratio(upper: Floats, lower: Floats) -> Floats:
    """NaN where there is nothing to divide by."""
    return np.divide(upper, lower, out=np.full(upper.shape, np.nan), where=lower > 0)


def _scope_metrics(prefix: str, scope: _Scope, sorted_by: Sequence[Floats] | None) -> list[Metric]:
    """The metrics of one scope; all of them missing where there are not two groups."""
    present = len(scope.groups)
    if sorted_by is None:
        sorted_by = [side.variance_P for side in scope.sides]
    variances = {"reward_variance": [side.variance_P for side in scope.sides], "sorted_variance": list(sorted_by)}
    found = {name: (scope.means(values), 0.0, np.inf) for name, values in variances.items()}
    why = "" if present else _EMPTY
    metrics = [_metric(f"{prefix}/{name}", *each, scope, why) for name, each in found.items()]
    whys = _EMPTY if not present else _TOO_FEW
    # A side of two groups has no interval, and would take the other side's away.
    scope = scope.filled(3) if scope.filled(3).sides else scope.filled(2)
    if not scope.sides:
        return metrics + [Metric(f"{prefix}/{name}", None, present, why=whys) for name in _names()]
    for part in PARTS:
        metrics += _part_metrics(f"{prefix}/{part}", part, scope)
    own_signal, own_noise = _signal(scope, ("task", "task")), _noise(scope, "task")
    metrics.append(_metric(f"{prefix}/snr", _ratio(own_signal, own_noise), -np.inf, np.inf, scope, _SILENT))
    metrics += [_cosine_metric(prefix, pair, scope) for pair in PAIRS]
    return metrics + _bound_metrics(prefix, scope)


def _cosine_metric(prefix: str, pair: tuple[str, str], scope: _Scope) -> Metric:
    """The cosine of the expected gradients: their product over the root of both squared signals.

    All three are means over pairs of different groups. A group's noise, which all parts of its gradient share, is
    never multiplied with itself. There is no value where a squared signal is not clearly above zero.
    """
    name, groups = f"{prefix}/cosine_{pair[0]}_{pair[1]}", len(scope.groups)
    if groups < 3:
        return Metric(name, None, groups, why="too few groups to tell a signal from zero")
    squares = []
    for part in pair:
        square = _signal(scope, (part, part))
        if not np.any(square):
            return Metric(name, None, groups, why="one of the two gradients is zero")
        if np.isnan(square).any() or jackknife_interval(float(square[0]), square[1:]).low <= 0:
            return Metric(name, None, groups, why=f"the squared signal of {part} is not clearly above zero")
        squares.append(square)
    product, lengths = _signal(scope, pair), np.sqrt((squares[0] * squares[1]).clip(0))
    interval = ratio_interval(float(product[0]), float(lengths[0]), product[1:], lengths[1:])
    if interval is None:
        return Metric(name, None, groups, why="the product of the two signals is not clearly above zero")
    value = min(max(float(product[0] / lengths[0]), -1.0), 1.0)
    return Metric(name, value, groups, *interval.cut(-1.0, 1.0))


def _part_metrics(prefix: str, part: str, scope: _Scope) -> list[Metric]:
    norm = np.sqrt(scope.product_of_means((part, part)).clip(0))
    prompts = scope.means([side.prompt_products[part] for side in scope.sides])
    single = np.sqrt(scope.means([np.diag(side.grams[part, part]).clip(0) for side in scope.sides]))
    return [
        _metric(f"{prefix}_norm", norm, 0.0, np.inf, scope, ""),
        _metric(f"{prefix}_group_norm", single, 0.0, np.inf, scope, ""),
        _metric(f"{prefix}_signal2", _signal(scope, (part, part)), -np.inf, np.inf, scope, ""),
        _metric(f"{prefix}_noise2", _noise(scope, part), 0.0, np.inf, scope, ""),
        _metric(f"{prefix}_prompt_signal2", prompts, -np.inf, np.inf, scope, "no group has four members to halve"),
    ]


def _signal(scope: _Scope, pair: tuple[str, str]) -> Floats:
    """The inner product of two expected gradients, over the pairs of different groups of both sides: `[1 + J]`."""
    (totals, own), counts = scope.products(pair), scope.counts()
    return _ratio((totals - own).sum(axis=0), (counts * (counts - 1)).sum(axis=0))


def _noise(scope: _Scope, part: str) -> Floats:
    """`noise2`, mean over the sides."""
    (totals, own), counts = scope.products((part, part)), scope.counts()
    # Rounding must not make a variance negative.
    return _ratio((own - totals / counts).clip(0), counts * (counts - 1)).mean(axis=0)


def _bound_metrics(prefix: str, scope: _Scope) -> list[Metric]:
    """How much of |g| <= sqrt(mean (R - mean)^2) sqrt(mean |s|^2) is used: by the mean gradient, by a single group's,
    and by the expected gradient of a prompt. All three of the undivided estimate: divided, the premise is gone."""
    part = ("task_undivided", "task_undivided")
    counts = scope.counts()
    deviations = scope.sums([side.deviation2_P for side in scope.sides]) / counts
    scores = scope.sums([side.score2_P for side in scope.sides]) / counts
    tightness = np.sqrt(_ratio(scope.product_of_means(part).clip(0), (deviations * scores).mean(axis=0)))
    single = [_group_tightness(side) for side in scope.sides]
    # Groups too small to be halved are left out above and below.
    known = [np.where(np.isnan(side.unbiased_products_P), np.nan, 1.0) for side in scope.sides]
    bounds = [side.variance_P * side.score2_P * known_P for side, known_P in zip(scope.sides, known, strict=True)]
    expected = _ratio(scope.means([side.unbiased_products_P for side in scope.sides]), scope.means(bounds))
    constant = "every group's rewards are constant: the bound and the gradient are zero"
    return [
        _metric(f"{prefix}/bound_tightness", tightness, 0.0, 1.0, scope, constant),
        _metric(f"{prefix}/bound_tightness_prompt", scope.means(single), 0.0, 1.0, scope, constant),
        _metric(f"{prefix}/bound_tightness2_expected", expected, -np.inf, np.inf, scope, constant),
    ]


def _group_tightness(side: Side) -> Floats:
    """Per group |g| over its own bound; NaN for a constant group."""
    squares = np.diag(side.grams["task_undivided", "task_undivided"]).clip(0)
    return np.sqrt(_ratio(squares, side.deviation2_P * side.score2_P))


def _names() -> list[str]:
    """The metrics that need two groups, in their order."""
    of_a_part = ("norm", "group_norm", "signal2", "noise2", "prompt_signal2")
    per_part = [f"{part}_{name}" for part in PARTS for name in of_a_part]
    cosines = [f"cosine_{one}_{other}" for one, other in PAIRS]
    return [*per_part, "snr", *cosines, "bound_tightness", "bound_tightness_prompt", "bound_tightness2_expected"]


def _metric(name: str, values: Floats, floor: float, ceiling: float, scope: _Scope, why: str) -> Metric:
    """The first value with the jackknife interval of the others, cut to the range; `why` where it is NaN."""
    groups = len(scope.groups)
    if np.isnan(values[0]):
        return Metric(name, None, groups, why=why)
    value = min(max(float(values[0]), floor), ceiling)
    if groups < 3 or np.isnan(values).any() or len(scope.filled(3).sides) < len(scope.filled(1).sides):
        return Metric(name, value, groups, why="no interval: too few groups")
    interval = jackknife_interval(value, values[1:])
    if interval.low == interval.high:
        return Metric(name, value, groups, why="no interval: no group differs from the others")
    return Metric(name, value, groups, *interval.cut(floor, ceiling))
