"""`python -m heedful.diagnostics.catalogue.page docs/metrics.md` writes the catalogue's tables into the page.

A table of the page is what is between two comments, `<!-- catalogue: NAME -->` and `<!-- end -->`; the text around the
tables is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from heedful.diagnostics.alarms.causes import table_of_causes
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.diagnostics.catalogue import TABLES, Entry

_WRITTEN = {
    "step": "Written at every step.",
    "measurement": "Written at every measurement, cheap or full.",
    "full measurement": "Written at full measurements.",
    "gradients": "Written when gradients are measured.",
    "evaluation": "Written at every evaluation.",
    "once": "Written once.",
}


def with_tables(page: str) -> str:
    """The page with every table as the catalogue has it. Raises KeyError for a block that names no table."""
    block = re.compile(r"(<!-- catalogue: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    tables = {name: _table(entries) for name, entries in TABLES.items()} | {"causes": table_of_causes()}
    return block.sub(lambda found: found[1] + "\n".join(["", *tables[found[2]], "", found[3]]), page)


def _table(entries: Sequence[Entry]) -> list[str]:
    """The lines of one table. A column without content is left out; one cadence for all is a line below."""
    cadences = {entry.cadence for entry in entries}
    stops = {f"alarm/{rule.name}": "stops" if rule.collapse else "warns" for rule in logged_rules(AlarmConfig())}
    columns: dict[str, Callable[[Entry], str]] = {
        # Without the parts that may be left out: the page says once what they are.
        "name": lambda entry: "`" + re.sub(r"\[.*?\]", "", entry.pattern) + "`",
        "meaning": lambda entry: f"{entry.text} {entry.detail}".strip(),
        "unit": lambda entry: entry.unit,
        "null when": lambda entry: entry.missing,
        "in a collapse": lambda entry: entry.collapse or "",
        "written at": lambda entry: entry.cadence if len(cadences) > 1 else "",
        "effect": lambda entry: stops.get(entry.pattern, ""),
        "its interval holds": lambda entry: entry.doubt.covers if entry.doubt else "",
        "† with": lambda entry: str(entry.doubt or ""),
    }
    shown = {head: cell for head, cell in columns.items() if any(map(cell, entries))}
    rows = [" | ".join(cell(entry).replace("|", "\\|") for cell in shown.values()) for entry in entries]
    lines = [" | ".join(shown), "|".join("---" for _ in shown), *rows]
    below = ["", _WRITTEN[cadences.pop()]] if len(cadences) == 1 else []
    return [*(f"| {line} |" if line[:3] != "---" else f"|{line}|" for line in lines), *below]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_tables(target.read_text(encoding="utf-8")), encoding="utf-8")
