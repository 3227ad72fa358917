"""Statistics of a score matrix together with their values when one prompt is deleted.

Promise: every deleted value equals the statistic recomputed without that prompt's rows and column. The cost is O(MN)
for all prompts together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heedful.diagnostics.cross_scores.score_matrix import Floats, ScoreMatrix
from heedful.diagnostics.statistics.intervals import effective_clusters, jackknife_interval, rate_interval
from heedful.types import Metric


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic and its delete-one-prompt values."""

    value: float
    deleted_N: Floats | None
    """`None` where deleting a prompt leaves too few to measure."""
    why: str = ""
    """Why there are no deleted values."""


def mean_over_rows(matrix: ScoreMatrix, rows_M: Floats, deleted_MN: Floats | None, why: str = "") -> Estimate:
    """The mean of a quantity that each row has, given also as it is when prompt j (column j) is deleted.

    Entries of `deleted_MN` in a row's own column are ignored: that row is deleted too.
    """
    if deleted_MN is None:
        return Estimate(float(rows_M.mean()), None, why)
    return Estimate(float(rows_M.mean()), deleted_means(matrix, deleted_MN))


def deleted_means(matrix: ScoreMatrix, deleted_MN: Floats) -> Floats:
    """Column by column the mean over the rows of the other prompts."""
    stays_MN = matrix.own_M[:, None] != np.arange(matrix.prompts)
    means_N: Floats = np.where(stays_MN, deleted_MN, 0.0).sum(axis=0) / stays_MN.sum(axis=0)
    return means_N


def log_sums_without(terms_MN: Floats) -> Floats:
    """logsumexp over each row with one column left out, for every column: prefixes joined with suffixes.

    Subtracting the column's term from the whole sum would cancel when that term dominates. This never subtracts.
    """
    nothing = np.full((len(terms_MN), 1), -np.inf)
    before_MN = np.logaddexp.accumulate(terms_MN, axis=1)[:, :-1]
    after_MN = np.logaddexp.accumulate(terms_MN[:, ::-1], axis=1)[:, ::-1][:, 1:]
    joined: Floats = np.logaddexp(np.hstack([nothing, before_MN]), np.hstack([after_MN, nothing]))
    return joined


ROUNDING = 1e-12
"""Nats: far below what any scorer can tell."""


def metric_from(
    name: str,
    estimate: Estimate,
    n: int,
    *,
    floor: float = -math.inf,
    ceiling: float = math.inf,
    saturated: bool = False,
    degrees: float | None = None,
) -> Metric:
    """The estimate as a metric with its 95% interval, cut to the range. None where saturated, and the reason.

    `degrees`: of freedom of Student's t, in place of one less than the prompts.
    """
    if saturated:
        return Metric(name, estimate.value, n, why="no interval: saturated, the ceiling is reached")
    if estimate.deleted_N is None:
        return Metric(name, estimate.value, n, why=f"no interval: {estimate.why}")
    interval = jackknife_interval(estimate.value, estimate.deleted_N, degrees)
    if estimate.value >= ceiling and interval.low == interval.high:
        return Metric(name, estimate.value, n, why="no interval: saturated, the ceiling is reached")
    low, high = map(_without_rounding, interval.cut(floor, ceiling))
    value = _without_rounding(estimate.value)
    return Metric(name, value, n, low, high, clusters=effective_clusters(estimate.deleted_N))


def _without_rounding(value: float) -> float:
    """Exactly 0 for what is 0 but for rounding: where nothing differs, an interval must not exclude 0."""
    return 0.0 if abs(value) < ROUNDING else value


def rate_from(name: str, estimate: Estimate, n: int) -> Metric:
    """The rate of n rows as a metric, with Wilson's interval for correlated trials (`rate_interval`)."""
    if estimate.deleted_N is None:
        return Metric(name, estimate.value, n, why=f"no interval: {estimate.why}")
    clusters = effective_clusters(estimate.deleted_N)
    return Metric(name, estimate.value, n, *rate_interval(estimate.value, estimate.deleted_N, n), clusters=clusters)


def over_tasks(
    metric: Metric,
    deleted: Sequence[Mapping[str, float | str | None]],
    tasks: int,
    metric_of: Callable[[str, Estimate, int], Metric],
) -> Metric:
    """The metric with an interval over tasks in place of the one over prompts, where it has one.

    `deleted`: for each task all values without its thoughts; empty for fewer than three tasks. `metric_of` makes the
    metric from its name, the estimate and n.
    """
    if metric.low is None or not isinstance(metric.value, float):
        return metric
    values = [found.get(metric.name) for found in deleted]
    numbers = [value for value in values if isinstance(value, float)]
    why = f"an interval needs at least 3 tasks, found {tasks}"
    if deleted and len(numbers) < len(values):
        numbers, why = [], "without one of the tasks too few prompts are left"
    estimate = Estimate(metric.value, np.array(numbers) if numbers else None, why)
    return metric_of(metric.name, estimate, metric.n or 0)
