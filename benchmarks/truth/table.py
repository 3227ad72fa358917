"""The table of coverage, made from the stored simulations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.truth.declaration import ESTIMATORS
from benchmarks.truth.results import Results
from benchmarks.truth.simulation import Estimator, Reading

from heedful.diagnostics.catalogue import CATALOGUE

LEAST = 0.9
"""Coverage below which a metric is flagged wherever its interval is shown."""
FEWEST = 0.25
"""Share of batches with an interval that a case needs to count. Below, the few intervals are chosen by the batch."""
_BLOCK = re.compile(r"(<!-- table: truth -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Judged:
    """One truth of a row in one case."""

    case: str
    name: str
    reading: Reading


def readings_of(estimator: Estimator, results: Results) -> list[Judged]:
    """All readings of a row whose batches gave enough intervals."""
    found = [
        Judged(case.name, name, results[case.name][name]) for case in estimator.cases for name in estimator.names(case)
    ]
    return [judged for judged in found if judged.reading.intervals >= FEWEST * judged.reading.batches]


def worst_of(estimator: Estimator, results: Results) -> Judged:
    """The reading with the lowest coverage."""
    return min(readings_of(estimator, results), key=lambda judged: judged.reading.coverage)


def flags() -> dict[str, str]:
    """Pattern of the catalogue -> what its interval covers; only those that cover less than they say."""
    return {entry.pattern: entry.covers for entry in CATALOGUE if entry.covers}


def with_table(page: str, results: Results) -> str:
    """The page with a new table between `<!-- table: truth -->` and `<!-- end -->`.

    Raises ValueError if the page has no place for it.
    """
    if not _BLOCK.search(page):
        raise ValueError("The page has no line '<!-- table: truth -->': where should the table go?")
    return _BLOCK.sub(lambda block: block[1] + "\n".join(_lines(ESTIMATORS, results)) + "\n" + block[2], page)


def _lines(estimators: Sequence[Estimator], results: Results) -> list[str]:
    head = ["interval of", "truth", "coverage", "worst case", "truth there", "bias there", "cases", "batches", "flag"]
    rows = [head, ["---"] * len(head)]
    known = flags()
    for estimator in estimators:
        judged, worst = readings_of(estimator, results), worst_of(estimator, results)
        coverages = [one.reading.coverage for one in judged]
        reading = worst.reading
        flagged = any(pattern in known for pattern in estimator.covers)
        low = min(coverages) < LEAST
        shown = f"{_percent(min(coverages))} to {_percent(max(coverages))}"
        rows.append(
            [
                estimator.label,
                estimator.known,
                f"**{shown}**" if low else shown,
                f"{worst.case}{_form(worst.name, estimator)}",
                f"{reading.truth:.3g}",
                f"{reading.bias:+.2g}",
                f"{len({one.case for one in judged})}",
                _span([one.reading.batches for one in judged]),
                "flagged" if flagged else "below" if low else "",
            ]
        )
    return [f"| {' | '.join(row)} |" for row in rows]


def _form(name: str, estimator: Estimator) -> str:
    """Which of several metrics the worst case is of."""
    return f": `{name.partition('#')[0].rpartition('/')[2]}`" if len(estimator.read) > 2 else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share < 0.995 or share == 1 else "99%"


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
