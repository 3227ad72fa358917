"""Metrics that a log or another trainer cannot give: missing with the reason, never a number from a placeholder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heedful.types import Metric

SUCCESS_METRICS = ("success/rate", "success/any_of_group", "signal/solved", "signal/blind", "signal/failed")
"""Metrics that need to know which episodes succeeded."""
SPREAD_METRICS = (
    "signal/reward_std",
    "signal/reward_variance",
    "signal/variance_dispersion",
    "signal/mixed",
    "signal/solved",
    "signal/blind",
    "signal/failed",
    "filter/mass_kept",
)
"""Metrics of the values that the filter reads."""


def unavailable(metrics: Sequence[Metric], reasons: Mapping[str, str]) -> list[Metric]:
    """The same metrics. Those that `reasons` names are missing, with that reason."""
    return [
        Metric(metric.name, None, why=reasons[metric.name]) if metric.name in reasons else metric for metric in metrics
    ]
