"""Whether the mark † stands where it should: intervals that miss the truth without one, and marks in healthy cases."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.truth.simulation import ROUNDING, Case, Estimator
from heedful.diagnostics.catalogue import CATALOGUE, Entry, is_doubtful
from heedful.types import Metric

STORED = Path(__file__).parents[1] / "results" / "marks.json"
BATCHES = 100
MOST_SILENT = 0.1
"""Share of the intervals of a case that may miss the truth without a mark."""
FEWEST = 20
"""Intervals that a case needs to count."""
HEALTHY = 0.93
"""Coverage from which on a case is healthy: marks are too many there."""


@dataclass(frozen=True)
class Marks:
    """The intervals of one truth in one case."""

    intervals: int
    marked: int
    missed: int
    """Intervals that do not hold the truth."""
    silent: int
    """Intervals without a mark that do not hold the truth."""


def flagged(estimator: Estimator) -> Entry | None:
    """The entry of the first metric of a row that has a rule; `None` for a row without one."""
    return next((entry for entry in CATALOGUE if entry.doubt and entry.pattern in estimator.covers), None)


def marks_of(case: Case, names: Iterable[str], batches: int) -> dict[str, Marks]:
    """Truth -> its marks. The first batches are those of the table of coverage."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    found: dict[str, list[Metric]] = {name: [] for name in names}
    for _ in range(batches):
        by_name = {metric.name: metric for metric in case.draw(rng)}
        for name, metrics in found.items():
            metrics.append(by_name[name.partition("#")[0]])
    return {name: counted(metrics, case.truths[name]) for name, metrics in found.items()}


def counted(metrics: Iterable[Metric], truth: float) -> Marks:
    slack = ROUNDING * max(1.0, abs(truth))
    judged = [
        (is_doubtful(metric), not metric.low - slack <= truth <= metric.high + slack)
        for metric in metrics
        if metric.low is not None and metric.high is not None
    ]
    marked, missed = (sum(column) for column in zip(*judged, strict=True)) if judged else (0, 0)
    return Marks(len(judged), marked, missed, sum(missed and not marked for marked, missed in judged))


def run(estimators: Iterable[Estimator], batches: int = BATCHES, path: Path = STORED) -> None:
    """Simulate every case of a row with a rule that the file lacks."""
    wanted: dict[str, tuple[Case, set[str]]] = {}
    for estimator in estimators:
        if flagged(estimator):
            for case in estimator.cases:
                wanted.setdefault(case.name, (case, set()))[1].update(estimator.names(case))
    for name, (case, names) in wanted.items():
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        stored = {known: rows for known, rows in stored.items() if known in wanted}
        if not names <= stored.get(name, {}).keys():
            stored[name] = {truth: vars(marks) for truth, marks in marks_of(case, sorted(names), batches).items()}
            write(stored, path)
            print(name, flush=True)


def write(stored: Mapping[str, Mapping[str, Mapping[str, int]]], path: Path = STORED) -> None:
    blocks = []
    for case, rows in sorted(stored.items()):
        lines = [f"  {json.dumps(name)}: {json.dumps(dict(row))}" for name, row in sorted(rows.items())]
        blocks.append(f" {json.dumps(case)}: {{\n" + ",\n".join(lines) + "\n }")
    path.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def load(path: Path = STORED) -> dict[str, dict[str, Marks]]:
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {case: {name: Marks(**counts) for name, counts in rows.items()} for case, rows in stored.items()}


def known(estimator: Estimator, results: Mapping[str, Mapping[str, Marks]]) -> list[tuple[str, Marks]]:
    """The cases of a row with enough intervals."""
    found = [
        (case.name, results[case.name][name])
        for case in estimator.cases
        for name in estimator.names(case)
        if name in results.get(case.name, {})
    ]
    return [(case, marks) for case, marks in found if marks.intervals >= FEWEST]


def lines(estimators: Iterable[Estimator], results: Mapping[str, Mapping[str, Marks]]) -> list[str]:
    """The table of marks."""
    rows = [
        ["interval of", "marked", "misses", "of them without a mark", "in", "marks in healthy cases", "intervals"],
        ["---"] * 7,
    ]
    for estimator in estimators:
        entry, cases = flagged(estimator), known(estimator, results)
        if entry is None or not cases:
            continue
        name, worst = max(cases, key=lambda case: case[1].silent / case[1].intervals)
        healthy = [m.marked / m.intervals for _, m in cases if m.missed <= (1 - HEALTHY) * m.intervals]
        counts = [marks.intervals for _, marks in cases]
        rows.append(
            [
                estimator.label,
                str(entry.doubt),
                f"{worst.missed / worst.intervals:.0%}",
                f"{worst.silent / worst.intervals:.0%}",
                name,
                f"{min(healthy):.0%} to {max(healthy):.0%}" if healthy else "no such case",
                f"{min(counts):,} to {max(counts):,}",
            ]
        )
    return [f"| {' | '.join(row)} |" for row in rows]
