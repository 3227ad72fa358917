"""What a registered test finds: figures with their intervals, and the verdict on its rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heedful.boundary.jsontext import read_json
from heedful.storage import write_whole
from heedful.types import Metric


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a test."""

    title: str
    value: float | None
    n: int | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


def figure(title: str, value: float | None, n: int | None = None, note: str = "") -> Figure:
    """A number without an interval."""
    return Figure(title, value, n, note=note)


def figure_of(title: str, metric: Metric) -> Figure:
    """A reading under another title."""
    return Figure(title, metric.number, metric.n, metric.low, metric.high, metric.why)


@dataclass(frozen=True, slots=True)
class Result:
    """What a test found."""

    passed: bool | None
    """Whether the rule holds. `None`: it was not judged, and a figure's note says why."""
    figures: list[Figure]

    def write(self, path: Path, **facts: Any) -> None:
        """Write it with further facts, such as the rule and the seeds."""
        tree = {**facts, "passed": self.passed, "figures": [asdict(each) for each in self.figures]}
        write_whole(path, json.dumps(tree, indent=1) + "\n")


def once(path: Path, measured: Callable[[], Any]) -> Any:
    """What the file holds; where there is none, what is measured now. So an interrupted test goes on."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(measured()) + "\n")
    return read_json(path)
