"""The stored results of the families, and the table of `docs/families.md` that is made from them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.families.check import PARTS, Found, names

STORED = Path(__file__).parents[1] / "results" / "families.json"
PAGE = Path(__file__).parents[2] / "docs" / "families.md"
BLOCK = re.compile(r"(<!-- table: families -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, Found]
"""What was found of each part."""


def versions() -> dict[str, str]:
    """The libraries that decide the outcome."""
    return {package: version(package) for package in ("torch", "transformers")}


def load() -> dict[str, Row]:
    """The stored rows, in the order of the table. Rows of other versions of the libraries are left out."""
    if not STORED.exists():
        return {}
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    if stored["versions"] != versions():
        return {}
    return rows_of(stored["rows"])


def rows_of(stored: dict[str, dict[str, dict[str, object]]]) -> dict[str, Row]:
    """Rows as they are stored, in the order of the table."""
    return {
        name: {part: Found(**stored[name][part]) for part in PARTS}  # type: ignore[arg-type]
        for name in names()
        if name in stored
    }


def save(rows: dict[str, Row]) -> None:
    """Store rows, one line for each part."""
    lines = []
    for name in (name for name in names() if name in rows):
        parts = ",\n".join(f"   {json.dumps(part)}: {json.dumps(asdict(rows[name][part]))}" for part in PARTS)
        lines.append(f"  {json.dumps(name)}: {{\n{parts}\n  }}")
    text = f'{{\n "versions": {json.dumps(versions())},\n "rows": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    STORED.write_text(text, encoding="utf-8")


def table(rows: dict[str, Row]) -> list[str]:
    """The lines of the table. Model types with equal ways share a row, with the largest of their errors."""
    head = ("scorer", "sampler", "learner", "model types", "largest error", "gradient")
    alike: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for name, row in rows.items():
        exact = all(found.exact for found in row.values())
        alike.setdefault((exact, tuple(row[part].way for part in PARTS)), []).append(name)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * 4 + "---:|" * 2]
    for (exact, ways), named in alike.items():
        errors = [found.error for name in named for found in rows[name].values() if found.error is not None]
        learners = [rows[name]["learner"] for name in named]
        gradients = [found.gradient for found in learners if found.gradient is not None]
        cells = [*ways, ", ".join(map(_label, named)), _figure(max(errors, default=None))]
        cells.append(_figure(max(gradients, default=None)))
        lines.append("| " + " | ".join(cells if exact else [f"**{cell}**" for cell in cells]) + " |")
    return lines


def _label(name: str) -> str:
    kind, _, window = name.partition(":")
    return f"`{kind}`" + (f" (window {window})" if window else "")


def with_table(page: str, rows: dict[str, Row]) -> str:
    """The page with a new table."""
    if not BLOCK.search(page):
        raise ValueError("The page has no line '<!-- table: families -->': where should the table go?")
    made = "\n".join(table(rows))
    return BLOCK.sub(lambda block: f"{block[1]}{made}\n{block[2]}", page)


def _figure(value: float | None) -> str:
    return "–" if value is None else "0" if value == 0 else f"{value:.0e}"
