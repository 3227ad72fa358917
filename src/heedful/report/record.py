"""A run as a report reads it: its metrics as series, its configuration, environment and verdict.

Promise: every value keeps its interval, its n and its reason. A missing value stays missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from heedful.boundary.jsontext import read_json
from heedful.report.drawing.numerals import in_full
from heedful.storage import RunFolder, StepMetrics, metric_from_json, read_metrics
from heedful.types import Metric

Content = TypeVar("Content")


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
        """At most about `most` points, evenly spread, first and last kept."""
        stride = -(-len(self.points) // most)
        if stride <= 1:
            return self
        kept = self.points[::stride]
        return Series(self.name, kept if kept[-1] == self.points[-1] else (*kept, self.points[-1]))


@dataclass(frozen=True, slots=True)
class Losses:
    """The files of a run that could not be read, and that the page does without."""

    sentences: list[str] = field(default_factory=list)

    def readable(self, read: Callable[[Path], Content], files: Iterable[Path]) -> Iterator[tuple[Path, Content]]:
        """The files that can be read, each with its content. The others are noted."""
        for file in files:
            try:
                yield file, read(file)
            except ValueError as error:
                if str(error) not in self.sentences:
                    self.sentences.append(str(error))


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
        return f"audit of {self.audited}" if self.audited else self.folder.path.resolve().name

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last step measured."""
        steps = [point.step for series in self.series.values() for point in (series.points[0], series.points[-1])]
        return (min(steps), max(steps)) if steps else (0, 0)

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
    audit = _json_object(folder.path / "audit.json")
    return RunRecord(
        folder,
        _series(read_metrics(folder.metrics)),
        flatten(_settings_of_an_audit(audit) or _json_object(folder.config)),
        flatten(_json_object(folder.environment)),
        _verdict(folder.verdict),
        str(audit.get("name", "")),
    )


def _settings_of_an_audit(audit: Mapping[str, object]) -> dict[str, object]:
    """What a reader wants of `audit.json`: not its fingerprints, nor what only a continued audit needs."""
    return {name: value for name, value in audit.items() if name not in ("files", "state", "lines", "version")}


def _series(lines: Sequence[StepMetrics]) -> dict[str, Series]:
    """Metrics by name. Where a step was written twice, the later one counts."""
    by_name: dict[str, dict[int, Point]] = {}
    for line in lines:
        for name, metric in line.metrics.items():
            by_name.setdefault(name, {})[line.step] = Point(line.step, metric)
    return {
        name: Series(name, tuple(sorted(points.values(), key=lambda point: point.step)))
        for name, points in by_name.items()
    }


def _json_object(path: Path) -> dict[str, object]:
    """A JSON object, empty where there is no such file."""
    if not path.exists():
        return {}
    try:
        content = read_json(path)
    except ValueError as error:
        raise ValueError(f"Expected JSON in {path}, found {error}. Restore the file, or delete it.") from error
    if not isinstance(content, dict):
        raise ValueError(
            f"Expected a JSON object in {path}, found a {type(content).__name__}. Restore it or delete it."
        )
    return content


def stored_sentences(path: Path) -> tuple[str, ...]:
    """The sentences of a `verdict.json`. Empty where there is none. Raises ValueError for a damaged one."""
    return _texts(_json_object(path), "sentences", path)


def _verdict(path: Path) -> StoredVerdict | None:
    content = _json_object(path)
    if not content:
        return None
    regime, figures = content.get("regime"), content.get("figures", {})
    if not isinstance(figures, dict):
        raise ValueError(f"Expected figures by name as `figures` in {path}, found {figures!r}. Restore or delete it.")
    try:
        shown = {name: in_full(metric_from_json(name, figure)) for name, figure in figures.items()}
    except ValueError as error:
        raise ValueError(f"Expected metrics as `figures` in {path}, found {error}. Restore or delete it.") from error
    return StoredVerdict(_texts(content, "sentences", path), str(regime or ""), shown, _texts(content, "read", path))


def _texts(content: Mapping[str, object], name: str, path: Path) -> tuple[str, ...]:
    found = content.get(name, [])
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"Expected a list of texts as `{name}` in {path}, found {found!r}. Restore or delete it.")
    return tuple(found)


def flatten(content: Mapping[str, object], above: str = "") -> dict[str, str]:
    """A nested JSON object as dotted keys with short JSON values."""
    flat: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return flat
