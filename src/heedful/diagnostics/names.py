"""The spelling of scopes and of the metrics of the scoring families: `<family>[@<scorer>]/<scope>/<metric>`."""

from __future__ import annotations

CPU = "time/cpu"
"""CPU seconds of a step's training. The other `time/*` are the seconds of its stages."""


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
