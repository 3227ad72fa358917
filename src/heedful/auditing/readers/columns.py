"""The columns of a log: what they hold, and which of them is success."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from heedful.auditing.logs.records import Row
from heedful.auditing.readers.reader import Hints
from heedful.boundary import listed

SUCCESS_NAMES = ("success", "acc", "correct", "is_correct", "solved")
"""Columns that hold success by the custom of their trainers, if they hold nothing but 0, 1, true and false."""


def columns_of(sample: Sequence[Row]) -> dict[str, list[object]]:
    """Column -> its values in these rows, missing ones left out; in order of first appearance."""
    found: dict[str, list[object]] = {}
    for row in sample:
        for name, value in row.items():
            found.setdefault(name, [])
            if value is not None and not (isinstance(value, float) and math.isnan(value)):
                found[name].append(value)
    return found


def choose_success(columns: dict[str, list[object]], hints: Hints) -> str | None:
    """The column of success. Raises ValueError if the one that was named is not there."""
    if hints.success is not None:
        require([hints.success], columns, "success")
        return hints.success
    return next((name for name in SUCCESS_NAMES if columns.get(name) and _binary(columns[name])), None)


def require(wanted: Iterable[str], columns: Iterable[str], flag: str) -> None:
    there = list(columns)
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(
            f"Expected --{flag} to name columns of the log, found no {listed(missing)}. "
            f"Its columns are {listed(there)}."
        )


def numeric(values: Sequence[object]) -> bool:
    """Numbers and nothing else, at least one (truth values are no numbers here)."""
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def scalar(values: Sequence[object]) -> bool:
    """Numbers and truth values and nothing else, at least one."""
    return bool(values) and all(isinstance(value, bool | int | float) for value in values)


def _binary(values: Sequence[object]) -> bool:
    return all(isinstance(value, bool | int | float) and value in (0, 1) for value in values)
