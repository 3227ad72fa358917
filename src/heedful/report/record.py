"""A run as a report reads it: its metrics as series, its configuration, environment and verdict.

Promise: every value keeps its interval, its n and its reason. A missing value stays missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.boundary.jsontext import read_json
from heedful.report.drawing.numerals import in_full
from heedful.report.embedding import spread
from heedful.storage import RunFolder, metric_from_json, read_metrics
from heedful.types import Metric

_NOT_SETTINGS = {"files", "state", "lines", "version", "scalars", "found", "assumed", "aside", "left_out", "rewritten"}
"""Of `audit.json`: fingerprints, what a continued audit needs, and what the verdict says in sentences."""


@dataclass(frozen=True, slots=True)
class Point:
    """One metric at one step."""

    step: int
    metric: Metric

    @property
    def number(self) -> float | None:
        """The value where it is a number; labels and missing values have none."""
        return None if isinstance(self.metric.value, str) else self.metric.value


@dataclass(frozen=True, slots=True)
class Series:
    """All values of one metric, by ascending step."""

    name: str
    points: tuple[Point, ...]

    @property
    def measured(self) -> tuple[Point, ...]:
        """The points that have a value, a number or a label."""
        return tuple(point for point in self.points if point.metric.value is not None)

    @property
    def numeric(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.number is not None)

    @property
    def missing(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.metric.value is None)

    def thinned(self, most: int) -> Series:
        """At most `most` points, evenly spread, first and last kept."""
        return Series(self.name, tuple(spread(self.points, most)))


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """What the run concluded about itself (`verdict.json`)."""

    sentences: tuple[str, ...]
    regime: str
    figures: Mapping[str, str]
    """Further figures by name, each with its interval or the reason why there is none."""
    read: tuple[str, ...] = ()
    """Of an audit: what was read, and what was assumed."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Everything a report says about a run, but for its rollouts and scores."""

    folder: RunFolder
    series: Mapping[str, Series]
    """By metric name, in order of first appearance."""
    config: Mapping[str, str]
    """Flat: dotted key to JSON value."""
    environment: Mapping[str, str]
    verdict: StoredVerdict | None
    audited: str = ""
    """The log, where the folder is that of an audit and not of a run."""

    @property
    def name(self) -> str:
        if self.audited:
            return f"audit of {self.audited}"
        path = self.folder.path.resolve()
        return f"{path.parent.name}/{path.name}" if "trainer" in self.config else path.name

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last step measured."""
        steps = [point.step for series in self.series.values() for point in (series.points[0], series.points[-1])]
        return (min(steps), max(steps)) if steps else (0, 0)

    @property
    def without_rollouts(self) -> str:
        """Why a run has none."""
        if not self.audited:
            return "The run stored no rollouts (folder rollouts/)."
        if self.config.get("format") == "scalars":
            return "Scalars alone were audited. Name the rollouts, too."
        return "This audit kept no rollouts (they need pyarrow, and no --no-keep-rollouts)."

    def get(self, name: str) -> Series:
        """The values of one metric; none where it was never recorded."""
        return self.series.get(name, Series(name, ()))

    def family(self, name: str) -> str:
        """`information`, or `information@<scorer>` where only a model that did not sample scored the thoughts."""
        found = dict.fromkeys(metric.split("/")[0] for metric in self.series)
        return next((family for family in found if family.startswith(f"{name}@") and name not in found), name)


def read_run(folder: RunFolder | Path | str) -> RunRecord:
    """Read what a report needs.

    Raises:
        ValueError: there are no measurements, or a file is malformed; the message names it.
    """
    folder = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
    by_name: dict[str, dict[int, Point]] = {}
    for line in read_metrics(folder.metrics):
        for name, metric in line.metrics.items():
            by_name.setdefault(name, {})[line.step] = Point(line.step, metric)  # a step written twice: the later counts
    audit, verdict = _json_object(folder.path / "audit.json"), _json_object(folder.verdict)
    settings = {name: value for name, value in audit.items() if name not in _NOT_SETTINGS}
    figures = verdict.get("figures", {})
    return RunRecord(
        folder,
        {name: Series(name, tuple(point for _, point in sorted(points.items()))) for name, points in by_name.items()},
        flatten(settings or _json_object(folder.config)),
        flatten(_json_object(folder.environment)),
        StoredVerdict(
            tuple(verdict.get("sentences", ())),
            verdict.get("regime") or "",
            {name: in_full(metric_from_json(name, figure)) for name, figure in figures.items()},
            tuple(verdict.get("read", ())),
        )
        if verdict
        else None,
        str(audit.get("name", "")),
    )


def _json_object(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no such file."""
    if not path.exists():
        return {}
    try:
        content: dict[str, Any] = read_json(path)
    except ValueError as error:
        raise ValueError(f"Expected JSON in {path}, found {error}. Restore the file, or delete it.") from error
    return content


def stored_sentences(path: Path) -> tuple[str, ...]:
    """The sentences of a `verdict.json`. Empty where there is none."""
    return tuple(_json_object(path).get("sentences", ()))


def flatten(content: Mapping[str, object], above: str = "") -> dict[str, str]:
    """A nested JSON object as dotted keys with short JSON values."""
    flat: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return flat
