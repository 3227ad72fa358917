"""The tables of coverage and of marks, made from the stored simulations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.truth import marks
from benchmarks.truth.declaration import ESTIMATORS
from benchmarks.truth.results import Results
from benchmarks.truth.simulation import Estimator, Reading
from heedful.diagnostics.catalogue import CATALOGUE

LEAST = 0.9
"""Coverage below which a metric is flagged wherever its interval is shown."""
FEWEST = 0.25
"""Share of batches with an interval that a case needs to count. Below, the few intervals are chosen by the batch."""
_BLOCKS = {name: re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL) for name in ("truth", "marks")}


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
    return {entry.pattern: entry.doubt.covers for entry in CATALOGUE if entry.doubt}


def with_tables(page: str, results: Results, of_marks: Mapping[str, Mapping[str, marks.Marks]]) -> str:
    """The page with new tables between `<!-- table: NAME -->` and `<!-- end -->`, for coverage and marks.

    Raises ValueError if the page has no place for one.
    """
    tables = {"truth": _lines(ESTIMATORS, results), "marks": marks.lines(ESTIMATORS, of_marks)}
    for name, lines in tables.items():
        if not _BLOCKS[name].search(page):
            raise ValueError(f"The page has no line '<!-- table: {name} -->': where should the table go?")
        made = "\n".join(lines)
        page = _BLOCKS[name].sub(lambda block, made=made: f"{block[1]}{made}\n{block[2]}", page)
    return page


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
