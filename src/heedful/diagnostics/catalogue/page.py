"""`python -m heedful.diagnostics.catalogue.page docs/metrics.md` writes the catalogue's lists into the page.

A list of the page is between two comments, `<!-- catalogue: NAME -->` and `<!-- end -->`; the text around the lists is
written by hand.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from heedful.diagnostics.alarms.causes import lists_of_causes
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.diagnostics.catalogue import TABLES, Entry

_WRITTEN = {
    "step": "every step",
    "measurement": "every measurement, cheap or full",
    "full measurement": "full measurements",
    "gradients": "measurements of gradients",
    "evaluation": "every evaluation",
    "once": "the end, once",
}
_ARROWS = {"lower": " ↓", "higher": " ↑", None: ""}


def with_tables(page: str) -> str:
    """The page with every list as the catalogue has it. Raises KeyError for a block that names none."""
    block = re.compile(r"(<!-- catalogue: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    tables = {name: _list(entries) for name, entries in TABLES.items()} | {"causes": lists_of_causes()}
    return block.sub(lambda found: found[1] + "\n".join(["", *tables[found[2]], "", found[3]]), page)


def _list(entries: Sequence[Entry]) -> list[str]:
    """The lines of one list. A line below has what most of its rows have in common."""
    stops = {f"alarm/{rule.name}" for rule in logged_rules(AlarmConfig()) if rule.collapse}
    rows = [list(row) for _, row in groupby(entries, key=lambda entry: entry.row or entry.pattern)]
    unit = entries[0].unit if len({entry.unit for entry in entries}) == 1 else ""
    missing, cadence = (
        Counter(each).most_common(1)[0][0] for each in ([r[0].missing for r in rows], [r[0].cadence for r in rows])
    )

    def names(row: Sequence[Entry]) -> str:
        """With marks, and the unit behind the last name that has it. Further names lack what precedes a slash."""
        cells = []
        for place, entry in enumerate(row):
            # Without the parts that may be left out: the page says once what they are.
            name = re.sub(r"\[.*?\]", "", entry.pattern)
            last = place + 1 == len(row) or row[place + 1].unit != entry.unit
            cells.append(f"`{name.split('/')[-1] if place else name}`{_ARROWS[entry.collapse]}")
            cells[-1] += f" ({entry.unit})" if last and entry.unit and not unit else ""
            cells[-1] += f" †{entry.doubt.limit()}" if entry.doubt else ""
        return ", ".join(cells)

    def meaning(row: Sequence[Entry]) -> str:
        first = row[0]
        cases = dict.fromkeys(entry.missing or "never" for entry in row)
        parts = [
            first.row or f"{first.text} {first.detail}".strip(),
            f"Null: {'; '.join(cases)}." if any(entry.missing != missing for entry in row) else "",
            f"At {_WRITTEN[first.cadence]}." if first.cadence != cadence else "",
            "**Stops.**" if first.pattern in stops else "",
        ]
        return " ".join(filter(None, parts))

    below = [f"Unit: {unit}."] if unit else []
    below += [f"Null: {missing}."] if missing else []
    return [
        *(f"- {names(row)}: {meaning(row)}" for row in rows),
        *("", " ".join([*below, f"Written at {_WRITTEN[cadence]}."])),
    ]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_tables(target.read_text(encoding="utf-8")), encoding="utf-8")
