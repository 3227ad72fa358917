from __future__ import annotations

import re
from pathlib import Path

from heedful.storage.rollouts import COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
KINDS = {
    "text": "text",
    "texts": "list of text",
    "int32s": "list of int32",
    "float64s": "list of float64",
    "text to float64": "map of text to float64",
}


def test_the_page_lists_every_rollout_column_in_order_with_its_type() -> None:
    table = PAGE[PAGE.index("| `schema_version` |") : PAGE.index("The context of turn k")]
    listed = [
        (name, kind)
        for names, kind in re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    ]
    assert listed == [(name, KINDS.get(kind, kind)) for name, kind in COLUMNS.items()]


def test_the_example_row_has_every_column_in_order() -> None:
    example = PAGE[PAGE.index('{"schema_version": 1') : PAGE.index("## Scores")]
    assert re.findall(r'"(\w+)": ', example.replace('{"solved": 1.0}', "{}")) == list(COLUMNS)
