"""Declared studies: arms x seeds, run as resumable processes, ending in tables with intervals and a page.

Promise: a study is data: its runs, comparisons and measures are declared before the first run. A changed declaration
never continues old runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.exports import lazily
from heedful.studies.declaration import (
    Arm,
    Interaction,
    Measure,
    Pair,
    Pool,
    Study,
    narrowed,
    read_study,
    settings,
    train,
)
from heedful.studies.declared import smoke

if TYPE_CHECKING:
    from heedful.studies.outcomes import Outcome, Outcomes, Reading, Table

__getattr__ = lazily(__name__, dict.fromkeys(("Outcome", "Outcomes", "Reading", "Table"), "heedful.studies.outcomes"))

STUDIES: Mapping[str, Callable[[], Study]] = {"smoke": smoke}
"""What `heedful study NAME` runs."""


def find_study(name: str, studies: Mapping[str, Callable[[], Study]] = STUDIES) -> Study:
    """The study of this name, or the one declared in the JSON file of this name.

    Raises:
        ValueError: there is neither, or the file cannot be understood.
    """
    if name in studies:
        return studies[name]()
    if name.endswith(".json"):
        return read_study(Path(name))
    raise ValueError(
        f"There is no study named {name!r}; known are {', '.join(studies)}, or your own as a JSON file "
        "(docs/studies.md)."
    )


__all__ = [
    "STUDIES",
    "Arm",
    "Interaction",
    "Measure",
    "Outcome",
    "Outcomes",
    "Pair",
    "Pool",
    "Reading",
    "Study",
    "Table",
    "find_study",
    "narrowed",
    "read_study",
    "settings",
    "train",
]
