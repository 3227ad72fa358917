"""The spelling of scopes and of scored metrics (`<family>[@<scorer>]/<scope>/<metric>`), and what a log cannot give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heedful.types import Metric

CPU = "time/cpu"
"""CPU seconds of a step's training. The other `time/*` are the seconds of its stages."""
SUCCESS_METRICS = ("success/rate", "success/any_of_group", "signal/solved", "signal/unpaid", "signal/failed")
"""Metrics that need to know which episodes succeeded."""
SPREAD_METRICS = (
    "signal/reward_std",
    "signal/reward_variance",
    "signal/variance_dispersion",
    "signal/mixed",
    "signal/solved",
    "signal/unpaid",
    "signal/failed",
    "filter/mass_kept",
)
"""Metrics of the values that the filter reads."""


def metric_name(family: str, scope: str, name: str, scorer: str = "") -> str:
    """E.g. `information/first_turn/mi`; with a scorer other than the policy `information@judge/first_turn/mi`.

    A batch that mixes environments passes `<scope>/<environment>` as the scope.
    """
    return f"{family}@{scorer}/{scope}/{name}" if scorer else f"{family}/{scope}/{name}"


def scope_name(scope: str, place: str = "", closed: bool = False) -> str:
    """E.g. `first_turn`; of closed thoughts alone `first_turn_closed`; with a place `first_turn_closed/lake`.

    `place`: `/<environment>` in a batch that mixes environments, else empty.
    """
    return f"{scope}_closed{place}" if closed else f"{scope}{place}"


def unavailable(metrics: Sequence[Metric], reasons: Mapping[str, str]) -> list[Metric]:
    """The same metrics. Those that `reasons` names are missing, with that reason."""
    return [
        Metric(metric.name, None, why=reasons[metric.name]) if metric.name in reasons else metric for metric in metrics
    ]
