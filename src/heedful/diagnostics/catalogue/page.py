"""The tables of `docs/metrics.md`, made from the catalogue.

A table of the page is what is between two comments, `<!-- catalogue: NAME -->` and `<!-- end -->`; the text around the
tables is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from heedful.diagnostics.alarms.rules import AlarmConfig, standard_rules
from heedful.diagnostics.catalogue import TABLES, Entry

_BLOCK = re.compile(r"(<!-- catalogue: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_WRITTEN = {
    "step": "Written at every step.",
    "measurement": "Written at every measurement, cheap or full.",
    "full measurement": "Written at full measurements.",
    "gradients": "Written when gradients are measured.",
    "evaluation": "Written at every evaluation.",
    "once": "Written once.",
}


def with_tables(page: str) -> str:
    """The page with every table as the catalogue has it.

    Raises ValueError for a block that names no table, and for a table without a block.
    """
    found = [name for _, name, _ in _BLOCK.findall(page)]
    if sorted(found) != sorted(TABLES):
        raise ValueError(
            f"Expected one block `<!-- catalogue: NAME -->` for each of {', '.join(sorted(TABLES))}; found "
            f"{', '.join(sorted(found)) or 'none'}. Add the missing blocks to the page and remove the others."
        )
    return _BLOCK.sub(lambda block: block[1] + "\n".join(["", *_table(TABLES[block[2]]), "", block[3]]), page)


def _table(entries: Sequence[Entry]) -> list[str]:
    """The lines of one table. A column without content is left out; one cadence for all is a line below."""
    cadences = {entry.cadence for entry in entries}
    columns: dict[str, Callable[[Entry], str]] = {
        "name": lambda entry: f"`{_short(entry.pattern)}`",
        "meaning": lambda entry: f"{entry.text} {entry.detail}".strip(),
        "unit": lambda entry: entry.unit,
        "null when": lambda entry: entry.missing,
        "in a collapse": lambda entry: entry.collapse or "",
        "written at": lambda entry: entry.cadence if len(cadences) > 1 else "",
        "effect": _effect,
        "its interval holds": lambda entry: entry.covers,
        "† with": lambda entry: str(entry.doubt or ""),
    }
    shown = {head: cell for head, cell in columns.items() if any(map(cell, entries))}
    rows = [" | ".join(cell(entry).replace("|", "\\|") for cell in shown.values()) for entry in entries]
    lines = [" | ".join(shown), "|".join("---" for _ in shown), *rows]
    below = ["", _WRITTEN[cadences.pop()]] if len(cadences) == 1 else []
    return [*(f"| {line} |" if line[:3] != "---" else f"|{line}|" for line in lines), *below]


def _short(pattern: str) -> str:
    """Without the parts that may be left out: the page says once what they are."""
    return re.sub(r"\[.*?\]", "", pattern)


def _effect(entry: Entry) -> str:
    """What an alarm does with `--on-collapse stop`; nothing for other metrics."""
    return _EFFECTS.get(entry.pattern, "")


_EFFECTS = {f"alarm/{rule.name}": "stops" if rule.collapse else "warns" for rule in standard_rules(AlarmConfig())}
