"""Intervals, statistics of groups, change points: plain functions of numbers."""

from heedful.diagnostics.statistics.change_point import largest_shift
from heedful.diagnostics.statistics.group_statistics import is_constant, sample_variance, scored, values_on
from heedful.diagnostics.statistics.intervals import (
    Interval,
    cluster_interval,
    cluster_rate_interval,
    jackknife_interval,
    mean_interval,
    wilson,
)

__all__ = [
    "Interval",
    "cluster_interval",
    "cluster_rate_interval",
    "is_constant",
    "jackknife_interval",
    "largest_shift",
    "mean_interval",
    "sample_variance",
    "scored",
    "values_on",
    "wilson",
]
