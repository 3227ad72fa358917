"""Signal and noise of the policy gradient by reward variance: `gradient/bucket_<b>/...` and `gradient/all/...`.

The input is the inner products of the groups' gradients. A squared signal is estimated without the noise that
squaring a norm adds. It may be negative and is never clipped. Intervals are taken over groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from heedful.diagnostics.gradient.scope import (
    Floats,
    GradientNoise,
    Scope,
    bucket_scopes,
    ratio,
    whole_scope,
)
from heedful.diagnostics.gradient.trend import trend_metrics
from heedful.diagnostics.statistics.intervals import effective_clusters, jackknife_interval, ratio_interval
from heedful.types import Metric

TASK_PARTS = ("task", "task_undivided", "task_divided")
"""The run's own estimate; that of R - mean of the group; the same divided by the group's standard deviation."""
PARTS = (*TASK_PARTS, "kl", "entropy")
PAIRS = (("task", "kl"), ("task", "entropy"), ("kl", "entropy"))
"""Pairs of parts whose cosine is measured."""
GRAMS = (*((part, part) for part in PARTS), *PAIRS)

_TOO_FEW = "fewer than two groups"
_EMPTY = "no group has such a variance"
_SILENT = "the gradient is zero in every group"


def gradient_metrics(
    measured: GradientNoise, buckets: int, coefficients: Mapping[str, float] | None = None
) -> list[Metric]:
    """Every `gradient/<b>/...` of all groups together and of each bucket of reward variance, and the trends.

    `coefficients` of the loss: a part with one above 0 also has its `<part>_weighted_norm`. Everything else of `kl` and
    `entropy` is of a coefficient of 1.

    `all` is read from whole groups. A bucket is chosen on one half of a group's members and measured on the other,
    both ways, so noise in the rewards cannot choose the noise in the gradient. A bucket therefore shows gradients of
    half as many members. Where one way finds fewer than three groups and the other has more, only the other counts
    (but for the variances). Groups of equal variance have equal shares in every bucket that their ranks reach
    (`bucket_shares`). n counts the groups with a share.
    """
    whole, halves = measured.whole, measured.halves
    metrics = _scope_metrics("gradient/all", whole_scope(whole), [whole.variance_P])
    for bucket, scope in enumerate(bucket_scopes(halves, buckets)):
        # A half is sorted by the other one.
        sorted_by = [halves[1].variance_P, halves[0].variance_P]
        metrics += _scope_metrics(f"gradient/bucket_{bucket}", scope, sorted_by)
    return [*metrics, *_weighted(metrics, coefficients or {}), *trend_metrics(measured, PARTS)]


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


def _scope_metrics(prefix: str, scope: Scope, sorted_by: Sequence[Floats]) -> list[Metric]:
    """The metrics of one scope; all of them missing where there are not two groups."""
    present = scope.groups
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
        name = f"{prefix}/{part}"
        norm = np.sqrt(scope.product_of_means((part, part)).clip(0))
        prompts = scope.means([side.prompt_products[part] for side in scope.sides])
        single = np.sqrt(scope.means([np.diag(side.grams[part, part]).clip(0) for side in scope.sides]))
        metrics += [
            _metric(f"{name}_norm", norm, 0.0, np.inf, scope, ""),
            _metric(f"{name}_group_norm", single, 0.0, np.inf, scope, ""),
            _metric(f"{name}_signal2", scope.signal((part, part)), -np.inf, np.inf, scope, ""),
            _metric(f"{name}_noise2", scope.noise(part), 0.0, np.inf, scope, ""),
            _metric(f"{name}_prompt_signal2", prompts, -np.inf, np.inf, scope, "no group has four members to halve"),
        ]
    own_signal, own_noise = scope.signal(("task", "task")), scope.noise("task")
    metrics.append(_metric(f"{prefix}/snr", ratio(own_signal, own_noise), -np.inf, np.inf, scope, _SILENT))
    metrics += [_cosine_metric(prefix, pair, scope) for pair in PAIRS]
    return metrics + _bound_metrics(prefix, scope)


def _cosine_metric(prefix: str, pair: tuple[str, str], scope: Scope) -> Metric:
    """The cosine of the expected gradients: their product over the root of both squared signals.

    All three are means over pairs of different groups. A group's noise, which all parts of its gradient share, is
    never multiplied with itself. There is no value where a squared signal is not clearly above zero.
    """
    name, groups = f"{prefix}/cosine_{pair[0]}_{pair[1]}", scope.groups
    if not _has_interval(scope):
        return Metric(name, None, groups, why="too few groups to tell a signal from zero")
    squares = []
    for part in pair:
        square = scope.signal((part, part))
        if not np.any(square):
            return Metric(name, None, groups, why="one of the two gradients is zero")
        if np.isnan(square).any() or jackknife_interval(float(square[0]), square[1:], scope.size - 1).low <= 0:
            return Metric(name, None, groups, why=f"the squared signal of {part} is not clearly above zero")
        squares.append(square)
    product, lengths = scope.signal(pair), np.sqrt((squares[0] * squares[1]).clip(0))
    interval = ratio_interval(float(product[0]), float(lengths[0]), product[1:], lengths[1:], scope.size - 1)
    if interval is None:
        return Metric(name, None, groups, why="the product of the two signals is not clearly above zero")
    value = min(max(float(product[0] / lengths[0]), -1.0), 1.0)
    return Metric(name, value, groups, *interval.cut(-1.0, 1.0))


def _bound_metrics(prefix: str, scope: Scope) -> list[Metric]:
    """How much of |g| <= sqrt(mean (R - mean)^2) sqrt(mean |s|^2) is used: by the mean gradient, by a single group's,
    and by the expected gradient of a prompt. All three of the undivided estimate: divided, the premise is gone."""
    part = ("task_undivided", "task_undivided")
    counts = scope.counts()
    deviations = ratio(scope.sums([side.deviation2_P for side in scope.sides]), counts)
    scores = ratio(scope.sums([side.score2_P for side in scope.sides]), counts)
    tightness = np.sqrt(ratio(scope.product_of_means(part).clip(0), (deviations * scores).mean(axis=0)))
    # Per group |g| over its own bound; NaN for a constant group.
    squares = [np.diag(side.grams[part]).clip(0) for side in scope.sides]
    single = [
        np.sqrt(ratio(squares_P, side.deviation2_P * side.score2_P))
        for squares_P, side in zip(squares, scope.sides, strict=True)
    ]
    # Groups too small to be halved are left out above and below.
    known = [np.where(np.isnan(side.unbiased_products_P), np.nan, 1.0) for side in scope.sides]
    bounds = [side.variance_P * side.score2_P * known_P for side, known_P in zip(scope.sides, known, strict=True)]
    expected = ratio(scope.means([side.unbiased_products_P for side in scope.sides]), scope.means(bounds))
    constant = "every group's rewards are constant: the bound and the gradient are zero"
    return [
        _metric(f"{prefix}/bound_tightness", tightness, 0.0, 1.0, scope, constant),
        _metric(f"{prefix}/bound_tightness_prompt", scope.means(single), 0.0, 1.0, scope, constant),
        _metric(f"{prefix}/bound_tightness2_expected", expected, -np.inf, np.inf, scope, constant),
    ]


def _names() -> list[str]:
    """The metrics that need two groups, in their order."""
    of_a_part = ("norm", "group_norm", "signal2", "noise2", "prompt_signal2")
    per_part = [f"{part}_{name}" for part in PARTS for name in of_a_part]
    cosines = [f"cosine_{one}_{other}" for one, other in PAIRS]
    return [*per_part, "snr", *cosines, "bound_tightness", "bound_tightness_prompt", "bound_tightness2_expected"]


def _metric(name: str, values: Floats, floor: float, ceiling: float, scope: Scope, why: str) -> Metric:
    """The first value with the jackknife interval of the others, cut to the range; `why` where it is NaN."""
    groups = scope.groups
    if np.isnan(values[0]):
        return Metric(name, None, groups, why=why)
    value = min(max(float(values[0]), floor), ceiling)
    if not _has_interval(scope) or np.isnan(values).any():
        return Metric(name, value, groups, why="no interval: too few groups")
    interval = jackknife_interval(value, values[1:], scope.size - 1)
    if math.isclose(interval.low, interval.high, rel_tol=1e-9):
        return Metric(name, value, groups, why="no interval: no group differs from the others")
    return Metric(name, value, groups, *interval.cut(floor, ceiling), clusters=effective_clusters(values[1:]))


def _has_interval(scope: Scope) -> bool:
    """Whether every side that holds a group is worth three of them or more."""
    present = sum(shares_JP[0].any() for shares_JP in scope.shares)
    return len(scope.filled(3).sides) == present > 0
