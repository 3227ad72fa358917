"""How metrics of the scoring families are called.

Promise: one place knows the grammar `<family>[@<scorer>]/<scope>/<metric>`.
"""

from __future__ import annotations


def metric_name(family: str, scope: str, name: str, scorer: str = "") -> str:
    """E.g. `information/first_turn/mi`; with a scorer other than the policy `information@judge/first_turn/mi`.

    A batch that mixes environments passes `<scope>/<environment>` as the scope.
    """
    return f"{family}@{scorer}/{scope}/{name}" if scorer else f"{family}/{scope}/{name}"
