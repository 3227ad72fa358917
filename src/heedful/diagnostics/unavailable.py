"""Metrics that a foreign source cannot give: missing with the reason, never a number read off a placeholder.

Promise: names and nothing else; whoever knows what a source lacks says so in its own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heedful.types import Metric

SUCCESS_METRICS = ("success/rate", "success/any_of_group", "signal/solved", "signal/blind", "signal/failed")
"""What cannot be told without knowing which episodes succeeded."""
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
"""What rests on the values that the filter looks at."""


def withheld(metrics: Sequence[Metric], unknown: Mapping[str, str]) -> list[Metric]:
    """The same metrics, those that `unknown` names replaced by its reason for them."""
    return [
        Metric(metric.name, None, why=unknown[metric.name]) if metric.name in unknown else metric for metric in metrics
    ]
