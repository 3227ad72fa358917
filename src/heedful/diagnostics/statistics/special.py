"""Special functions of Student's t, the beta and the gamma distribution, so that measuring needs numpy alone.

`tests/diagnostics/statistics/test_special.py` compares each with scipy: the relative error is at most 1e-12.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_CORRECTION = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
"""Stirling's series of log gamma in odd powers of 1 / x. Its derivative is that of psi."""
_LARGE = 12.0
"""Arguments from which the series is exact to rounding."""
_ROUNDS = 10_000
"""Most terms of the continued fraction. About the root of the larger parameter are used."""


def normal_quantile(share: float) -> float:
    """The normal distribution's quantile, which is minus infinity at 0."""
    return NormalDist().inv_cdf(share) if share > 0 else -math.inf


def student_share(degrees: Floats, t: Floats) -> Floats:
    """The share of Student's t distribution below each `t` <= 0."""
    with np.errstate(divide="ignore"):
        ratio = t * t / degrees
        return 0.5 * beta_share(degrees / 2, np.full_like(ratio, 0.5), 1 / (1 + ratio), 1 / (1 + 1 / ratio))


@lru_cache(maxsize=4096)
def student_quantile(degrees: float, share: float) -> float:
    """The quantile of Student's t distribution for a share of at least a half."""
    low = beta_quantile(0.5, degrees / 2, 2 * share - 1)
    return math.sqrt(degrees * low / (1 - low))


def beta_share(a: Floats, b: Floats, x: Floats, rest: Floats) -> Floats:
    """The regularised incomplete beta function I_x(a, b) for arrays of one shape. `rest` is 1 - x.

    Source: the continued fraction of Didonato and Morris (1992), section 8.17 of the DLMF, by Lentz's method.
    """
    turned = x > (a + 1) / (a + b + 2)  # the fraction converges slowly there, and fast for the other tail
    a, b = np.where(turned, b, a), np.where(turned, a, b)
    x, rest = np.where(turned, rest, x), np.where(turned, x, rest)
    c = np.ones_like(x)
    d = value = 1 / (1 - (a + b) * x / (a + 1))
    for m in range(1, _ROUNDS):
        even, odd = m * (b - m) / (a + 2 * m - 1), -(a + m) * (a + b + m) / (a + 2 * m + 1)
        for term in (even * x / (a + 2 * m), odd * x / (a + 2 * m)):
            d, c = 1 / (1 + term * d), 1 + term / c
            value = value * c * d
        if np.all(np.abs(c * d - 1) < 4e-16):
            break
    with np.errstate(divide="ignore"):
        log_x, log_rest = (np.where(one < 0.5, np.log(one), np.log1p(-other)) for one, other in ((x, rest), (rest, x)))
        front = np.exp(a * log_x + b * log_rest - _log_beta(a, b))
    tail = front * value / a
    return np.where(turned, 1 - tail, tail)


def beta_quantile(a: float, b: float, share: float) -> float:
    """The x at which I_x(a, b) is `share`: Newton's method between bounds that close in."""
    low, high, x = 0.0, 1.0, a / (a + b)
    log_beta = float(_log_beta(np.array(a), np.array(b)))
    for _ in range(200):
        found = float(beta_share(*(np.array(value) for value in (a, b, x, 1 - x)))) - share
        low, high = (low, x) if found > 0 else (x, high)
        slope = math.exp((a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - log_beta)
        new = x - found / slope if slope > 0 else low
        if low < new < high and abs(new - x) <= 1e-8 * x:
            return new  # its error is about the square of that
        x = new if low < new < high else (low + high) / 2
    return x


def log_gamma(x: npt.ArrayLike) -> Floats:
    """The logarithm of the gamma function of each value above 0."""
    values = np.asarray(x, dtype=np.float64)
    return np.fromiter(map(math.lgamma, values.ravel().tolist()), np.float64, values.size).reshape(values.shape)


def psi(x: npt.ArrayLike) -> Floats:
    """The derivative of `log_gamma` for each value above 0."""
    values, found = np.array(x, dtype=np.float64), np.zeros(np.shape(x))
    while (low := values < _LARGE).any():
        found -= np.where(low, 1 / values, 0.0)
        values += low
    series = sum((2 * k + 1) * factor / values ** (2 * k + 2) for k, factor in enumerate(_CORRECTION))
    total: Floats = found + np.log(values) - 0.5 / values - series
    return total


def x_log_x(x: Floats) -> Floats:
    """x log x, which is 0 at 0."""
    found: Floats = x * np.log(np.where(x > 0, x, 1.0))
    return found


def _log_beta(a: Floats, b: Floats) -> Floats:
    """log B(a, b), without the difference of two large logarithms."""
    small, large = np.minimum(a, b), np.maximum(a, b)
    both = np.maximum(large, _LARGE)
    ratio = (both - 0.5) * np.log1p(small / both) + small * np.log(both + small) - small
    ratio += _stirling(both + small) - _stirling(both)
    direct = log_gamma(np.minimum(large, _LARGE) + small) - log_gamma(np.minimum(large, _LARGE))
    found: Floats = log_gamma(small) - np.where(large >= _LARGE, ratio, direct)
    return found


def _stirling(x: Floats) -> Floats:
    total: Floats = sum(factor / x ** (2 * k + 1) for k, factor in enumerate(_CORRECTION)) + 0.0 * x
    return total
