"""Finished runs as series of numbers, found below any folder, and their readings at evaluations and at steps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heedful.boundary.jsontext import read_json
from heedful.report.record import flatten
from heedful.storage import RunFolder, StepMetrics, read_metrics

Floats = npt.NDArray[np.float64]

STEP = "step"
"""The name under which a run's series holds the number of the step itself: a reading that knows the time alone."""


@dataclass(frozen=True, slots=True)
class RunSeries:
    """The numbers of one finished run."""

    name: str
    """Its folder."""
    stratum: str
    """Environment and model, with the knobs of both that differ among the runs: those of one are compared."""
    series: Mapping[str, Mapping[int, float]]
    """Metric -> step -> number. Labels and missing values are left out."""
    seed: int = 0
    """Runs of one stratum and seed meet the same tasks."""

    def at_evaluations(self, success: str, metric: str) -> Floats:
        """For each evaluation in time: the reading, success now and at the next one, and the step; `[evaluations, 4]`.

        The reading is the last one after the evaluation before and up to this one. An evaluation and a reading of the
        same step belong to the same weights. NaN where there is none.
        """
        evaluated, read = sorted(self.series.get(success, {}).items()), self.series.get(metric, {})
        rows = []
        for place, (step, value) in enumerate(evaluated):
            before = evaluated[place - 1][0] if place else -1
            steps = [each for each in read if before < each <= step]
            later = evaluated[place + 1][1] if place + 1 < len(evaluated) else math.nan
            rows.append((read[max(steps)] if steps else math.nan, value, later, step))
        return np.array(rows, dtype=np.float64).reshape(len(rows), 4)

    def at_steps(self, one: str, other: str) -> Floats:
        """Both metrics at the steps that have both, and the step; `[steps, 3]`."""
        first, second = self.series.get(one, {}), self.series.get(other, {})
        rows = [(first[step], second[step], step) for step in sorted(first.keys() & second.keys())]
        return np.array(rows, dtype=np.float64).reshape(len(rows), 3)

    def course(self, metric: str, share: float) -> tuple[float, float] | None:
        """The means of the metric over the first and the last `share` of the steps that read it; `None` for under 4."""
        values = [value for _, value in sorted(self.series.get(metric, {}).items())]
        if len(values) < 4:
            return None
        count = max(1, round(share * len(values)))
        return float(np.mean(values[:count])), float(np.mean(values[-count:]))


_NO_RUNS = ("audit.json", "audit-progress.json", "evaluation.json")
"""What only audits and evaluations of served models hold. They have measurements and a verdict, as runs have."""


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """The runs below some folders."""

    runs: tuple[RunSeries, ...]
    unfinished: tuple[str, ...]
    """Folders of runs without a verdict: they go on, were stopped, or do not train."""
    copies: tuple[str, ...] = ()
    """Folders with the numbers of a run that is read already: a copy, or the same run in another study."""


def find_runs(folders: Sequence[Path], metrics: Iterable[str]) -> FoundRuns:
    """Every run below the folders, each once. Raises ValueError for a folder without a finished run, or that is none.

    Only the named metrics are kept. A run that was copied is no second run: intervals would be too narrow.
    """
    wanted = set(metrics)
    runs: dict[Path, RunFolder] = {}
    unfinished: dict[Path, str] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"Expected folders of studies or of runs, found no folder at {folder}.")
        here = [
            RunFolder(path)
            for path in sorted(found.parent for found in folder.rglob("metrics.jsonl"))
            if not any((path / record).exists() for record in _NO_RUNS)
        ]
        over = {run.path.resolve(): run for run in here if run.verdict.exists()}
        if not over:
            raise ValueError(
                f"Expected finished runs below {folder}, found {len(here)} without a verdict. A run that is not "
                "finished goes on with its command. An evaluation is no run: leave its folder out."
            )
        runs |= over
        unfinished |= {run.path.resolve(): str(run.path) for run in here if not run.verdict.exists()}
    found: dict[object, RunSeries] = {}
    copies = []
    configs = [read_json(run.config) for run in runs.values()]
    for run, config, stratum in zip(runs.values(), configs, _strata(configs), strict=True):
        lines = read_metrics(run.metrics)
        same = (stratum, config["seed"], _signature(lines))
        if same in found:
            copies.append(str(run.path))
        else:
            found[same] = RunSeries(str(run.path), stratum, _series(lines, wanted), config["seed"])
    return FoundRuns(tuple(found.values()), tuple(unfinished.values()), tuple(copies))


def _signature(lines: Sequence[StepMetrics]) -> bytes:
    """Equal for runs of the same numbers. Only how long they took may differ."""
    numbers = [
        (line.step, sorted((name, line.metrics[name].value) for name in line.metrics if not name.startswith("time/")))
        for line in lines
    ]
    return sha256(json.dumps(numbers).encode()).digest()


def _series(lines: Sequence[StepMetrics], wanted: set[str]) -> dict[str, dict[int, float]]:
    series: dict[str, dict[int, float]] = {STEP: {}}
    for line in lines:
        series[STEP][line.step] = float(line.step)
        for name in wanted & line.metrics.keys():
            value = line.metrics[name].number
            if value is not None and math.isfinite(value):
                series.setdefault(name, {})[line.step] = value
    return series


def _strata(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each run its environment and model, with the knobs of the task and of the seedling that tell runs apart."""
    names, knobs = zip(*map(_name_and_knobs, configs), strict=True)
    telling = {
        name: _telling([its for other, its in zip(names, knobs, strict=True) if other == name]) for name in names
    }
    strata = [
        ", ".join([name, *(f"{knob} {its[knob]}" for knob in telling[name] if knob in its)])
        for name, its in zip(names, knobs, strict=True)
    ]
    return [" ".join(stratum.split()) for stratum in strata]  # a line of the page and a cell of a table


def _telling(runs: Sequence[Mapping[str, str]]) -> list[str]:
    """Knobs that tell the runs apart as well as all knobs do. One that follows from those before it is left out."""
    kept: list[str] = []
    kinds = 1
    for knob in dict.fromkeys(knob for its in runs for knob in its):
        found = len({tuple(its.get(other) for other in (*kept, knob)) for its in runs})
        if found > kinds:
            kept.append(knob)
            kinds = found
    return kept


def _name_and_knobs(config: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    name, model, knobs = config["env"]["type"], config.get("model", "seedling"), flatten(config["env"])
    if model == "seedling":
        knobs |= flatten({"seedling": config.get("seedling", {})})
    else:
        name = f"{name}, {Path(model).name}"
    return name, {knob: value for knob, value in knobs.items() if knob not in ("type", "seedling.seed")}
