"""The columns of the live tables. A new column is one row here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One metric in the live table of a run."""

    heading: str
    metric: str
    ceiling: str = ""
    """A second metric, shown after a slash."""
    digits: int = 3
    of_many: bool = False
    """Also shown in the table of several runs."""


_THOUGHTS = "information/first_turn"

LIVE_COLUMNS = (
    Column("success", "success/rate", of_many=True),
    Column("kept", "filter/kept_ratio", of_many=True),
    Column("H(Z|X)/tok", f"{_THOUGHTS}/entropy_conditional_per_token"),
    Column("MI / ceiling", f"{_THOUGHTS}/mi", f"{_THOUGHTS}/mi_ceiling"),
    Column("gap/tok", f"{_THOUGHTS}/gap_per_token", of_many=True),
    Column("retrieval", "retrieval/first_turn/accuracy"),
    Column("tokens", "tokens/collect", digits=0),
)
"""In the order of the table."""
