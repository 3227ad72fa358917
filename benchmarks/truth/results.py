"""The stored result of all simulations, case by case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.truth.simulation import Case, Reading, simulate

STORED = Path(__file__).parents[1] / "results" / "truth.json"

Results = Mapping[str, Mapping[str, Reading]]
"""Case -> truth -> reading."""


def load(path: Path = STORED) -> dict[str, dict[str, Reading]]:
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {case: {name: Reading(**figures) for name, figures in readings.items()} for case, readings in stored.items()}


def run(cases: Mapping[str, Case], path: Path = STORED) -> None:
    """Simulate the cases that the file lacks, one after the other, and add each to the file."""
    for name, case in cases.items():
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        stored = {known: readings for known, readings in stored.items() if known in cases}
        if name not in stored:
            stored[name] = {truth: reading.to_json() for truth, reading in simulate(case, case.batches).items()}
        path.write_text(_text(stored, cases), encoding="utf-8")
        print(name, flush=True)


def _text(stored: Mapping[str, Mapping[str, Any]], cases: Mapping[str, Case]) -> str:
    """One line for each reading, in the order of the cases."""
    blocks = []
    for case in (case for case in cases if case in stored):
        lines = [f"  {json.dumps(name)}: {json.dumps(figures)}" for name, figures in stored[case].items()]
        blocks.append(f" {json.dumps(case)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"
