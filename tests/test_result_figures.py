"""The figures on the pages of the studies: each interval is in a committed table, or follows from counts beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from heedful.studies import paired

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
COMMITTED = ROOT / "benchmarks" / "results"

NUMBER = r"([+-]?\d*\.?\d+(?:e-\d+)?)"
INTERVAL = re.compile(rf"(?:{NUMBER}(?:%|\*\*)? )?\[{NUMBER}(?:,| to) {NUMBER}(?: †)?\]")
"""A number, where one stands before the bracket, and the two bounds."""

COUNTS = re.compile(r".*\b(\d+) of (\d+)\b[^\[\]]*$")
"""The last counts before a bracket."""

NEAR = 200
"""Characters before a bracket in which its counts are looked for."""

SCALES = (1.0, 100.0, 1e-3)
"""As it is, in percent or points, and in thousands."""

ON_A_PAGE = ("visual.md",)
"""Pages whose tables are the record of their study."""

UNWRITTEN = {
    "matrix.md": [".53 [.42, .64]"],
    "noise.md": ["-.001 [-.017, +.014]", "+.010 [-.056, +.077]"],
    "paper.md": [
        "+.012 [+.007, +.017]",
        "-.014 [-.071, +.042]",
        "-.001 [-.017, +.014]",
        "+.010 [-.056, +.077]",
        "-.031 [-.109, +.047]",
    ],
    "regularised.md": ["-.031 [-.109, +.047]", "-.025 [-.030, -.021]"],
    "selection.md": ["-.014 [-.071, +.042]", "+.012 [+.007, +.017]", "+.026 [-.026, +.078]", "+.017 [-.003, +.038]"],
    "treatments.md": ["1.24 [1.10, 1.39]", "1.09 [.98, 1.20]"],
}
"""Read from the runs of a study, in a row that its committed table does not have."""

PAGES = (
    "collapse.md",
    "early_warning.md",
    "matrix.md",
    "natural.md",
    "noise.md",
    "paper.md",
    "quartiles.md",
    "regularised.md",
    "selection.md",
    "shaped.md",
    "sizes.md",
    "causes.md",
    "treatments.md",
)
"""Of the studies whose tables are committed."""

clopper_pearson = cache(paired.clopper_pearson)

MOST_RUNS = 60
"""In a table of counts, whose heading has their total."""


@cache
def committed() -> np.ndarray:
    """Low, high and value of each interval of the committed tables and of the figures of registered tests, in every
    scale, and with the other sign."""
    tables = [*COMMITTED.rglob("*.md"), *(RESULTS / name for name in ON_A_PAGE)]
    registered = [*COMMITTED.glob("rightness/test_*.json"), *COMMITTED.glob("causes/*.json")]
    figures = [each for path in registered for each in json.loads(path.read_text(encoding="utf-8"))["figures"]]
    found = np.array(
        [
            [float(each[2]), float(each[3]), float(each[1] or "nan")]
            for table in tables
            for each in INTERVAL.finditer(plain(table.read_text(encoding="utf-8")))
        ]
        + [[each["low"], each["high"], each["value"]] for each in figures if each["low"] is not None]
    )
    both = np.concatenate([found, -found[:, [1, 0, 2]]])  # by how much something falls
    return np.concatenate([scale * both for scale in SCALES])


def plain(text: str) -> str:
    """One line, with a hyphen for minus and no commas inside numbers."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", re.sub(r"\s+", " ", text.replace("\N{MINUS SIGN}", "-")))


def unfounded(text: str) -> Iterator[str]:
    """The intervals that are in no table, rounded as they are, and that no counts before them give."""
    text = plain(text)
    for found in INTERVAL.finditer(text):
        value, low, high = found.groups()
        before = text[max(0, found.start(2) - NEAR) : found.start(2) - 1]
        counted = re.search(r"\d of \d+ $", before)
        if not counted and same((low, high, value) if value else (low, high), committed()):
            continue
        exact = np.array([clopper_pearson(count, total) for count, total in counts(before, value)]).reshape(-1, 2)
        if not same((low, high), exact):
            yield found[0]


def counts(before: str, value: str | None) -> list[tuple[int, int]]:
    """Counts and totals that an interval may be of: the last `k of n` before it, or a whole number of any total."""
    named = COUNTS.match(before)
    if named is not None:
        return [(int(named[1]), int(named[2]))] if int(named[1]) <= int(named[2]) else []
    if value is None or not value.isdigit():
        return []
    return [(int(value), total) for total in range(max(int(value), 1), MOST_RUNS + 1)]


def same(written: tuple[str, ...], known: np.ndarray) -> bool:
    """Whether a row begins with the numbers, rounded as they are written."""
    for column, text in enumerate(written):
        known = known[np.abs(known[:, column] - float(text)) <= 0.51 * unit(text)]
    return len(known) > 0


def unit(number: str) -> float:
    """The value of the last digit written."""
    digits, _, power = number.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


@pytest.mark.parametrize("page", PAGES)
def test_every_interval_of_a_page_is_in_a_committed_table(page: str) -> None:
    assert sorted(set(unfounded((RESULTS / page).read_text(encoding="utf-8")))) == sorted(UNWRITTEN.get(page, []))


def test_a_wrong_digit_is_found() -> None:
    text = (RESULTS / "paper.md").read_text(encoding="utf-8")
    wrong = text.replace("2.53 [2.39, 2.66]", "2.53 [2.39, 2.76]").replace("+0.669 [+0.632", "+0.679 [+0.632")
    assert set(unfounded(wrong)) - set(unfounded(text)) == {"2.53 [2.39, 2.76]", "+0.679 [+0.632, +0.705]"}


def test_an_interval_of_counts_follows_from_them() -> None:
    assert list(unfounded("an alarm in 11 of 12 [.615, .998]")) == []
    assert list(unfounded("an alarm in 10 of 12 [.615, .998]")) == ["12 [.615, .998]"]
