"""Does a group's gradient grow with the variance of its rewards: slopes over the rank, with intervals over groups.

Groups are ranked by one half of their members and measured on the other, both ways, as buckets are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heedful.diagnostics.gradient.scope import Floats, GradientNoise
from heedful.diagnostics.statistics.intervals import effective_clusters, jackknife_interval
from heedful.types import Metric

REGULARISERS = ("kl", "entropy")
CLIMBS = "task_undivided"
"""The part that the bound speaks of: its growth is compared with that of the regularisers."""

FEWEST = 8
"""Groups that a slope needs."""


def trend_metrics(measured: GradientNoise, parts: Sequence[str]) -> list[Metric]:
    """`gradient/all/<part>_trend` of each part, and how much steeper the task gradient is than each regulariser.

    A trend is the slope of the norm of a single group's gradient over the group's rank by variance (0 = lowest, 1 =
    highest, equal variances share a rank), divided by the mean norm: 1 means that the norm grows by its own mean from
    the lowest rank to the highest, 0 that it is flat. Ranks by one half of the members are noisy, which flattens it.
    """
    trends = {part: _trends(measured, part) for part in parts}
    found = [_metric(f"gradient/all/{part}_trend", values) for part, values in trends.items()]
    for regulariser in REGULARISERS:
        both = trends[CLIMBS], trends[regulariser]
        steeper = None if both[0] is None or both[1] is None else both[0] - both[1]
        found.append(_metric(f"gradient/all/{CLIMBS}_trend_over_{regulariser}", steeper))
    return found


def _trends(measured: GradientNoise, part: str) -> Floats | None:
    """The trend with all groups, then without each; `None` for too few groups, one rank, or a gradient of zero."""
    sides = measured.halves
    sorted_by = [sides[1].variance_P, sides[0].variance_P]
    known_P = ~np.isnan(sorted_by[0]) & ~np.isnan(sorted_by[1])
    norms = [np.sqrt(np.nan_to_num(np.diag(side.grams[part, part])).clip(0)) for side in sides]
    places = np.flatnonzero(known_P)
    count = len(places)
    if count < FEWEST:
        return None
    others = np.stack([np.delete(places, number) for number in range(count)])
    trends = [
        _slopes(np.hstack([v[rows] for v in sorted_by]), np.hstack([n[rows] for n in norms]))
        for rows in (places[None], others)
    ]
    return None if np.isnan(found := np.concatenate(trends)).any() else found


def _slopes(variance_RN: Floats, norm_RN: Floats) -> Floats:
    """In each row, slope over the rank, over the mean norm; NaN where ranks or norms do not vary."""
    ordered = [(row, np.sort(row)) for row in variance_RN]  # equal values share the mean of their ranks
    ranks_RN = np.stack([(at.searchsorted(row) + at.searchsorted(row, "right") + 1) / 2 for row, at in ordered])
    shares_RN = (ranks_RN - 1) / (ranks_RN.shape[1] - 1)
    deviations_RN = shares_RN - shares_RN.mean(axis=1, keepdims=True)
    scale_R = (deviations_RN**2).sum(axis=1) * norm_RN.mean(axis=1)
    along_R = (deviations_RN * norm_RN).sum(axis=1)
    return np.divide(along_R, scale_R, out=np.full(len(scale_R), np.nan), where=scale_R > 0)


def _metric(name: str, trends: Floats | None) -> Metric:
    if trends is None:
        return Metric(name, None, 0, why="fewer than eight groups, one variance in all, or no gradient")
    interval = jackknife_interval(float(trends[0]), trends[1:])
    return Metric(name, float(trends[0]), len(trends) - 1, *interval, "", effective_clusters(trends[1:]))
