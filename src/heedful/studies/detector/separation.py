"""ROC of every metric between the values of collapsed and of healthy arms.

Promise: the best metric is chosen on one half of the values and its area is reported from the other, so that choosing
among many does not flatter it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import fmean, variance

from heedful.diagnostics.catalogue import direction_of
from heedful.report.record import RunRecord
from heedful.studies.declaration import Separation
from heedful.studies.detector.roc import Area, Sample, area, roc_curve

Records = Mapping[str, Mapping[str, RunRecord]]
"""Arm -> label of the run -> its measurements."""

MOST_CURVES = 6
"""ROC curves kept for the page: those of the best metrics."""


@dataclass(frozen=True, slots=True)
class SeparationOutcome:
    """The areas of all metrics, best first."""

    spec: Separation
    areas: Mapping[str, Area]
    best: str
    """The metric that separates best on the values of even steps. Empty where there is none."""
    confirmed: Area | None
    """Its area on the values of odd steps."""
    by_arm: Mapping[str, Mapping[str, Area]]
    """Metric -> collapsed arm -> area against the healthy arms, for the best metrics."""
    curves: Mapping[str, Sequence[tuple[float, float]]]
    """Metric -> (false alarm rate, hit rate), for the best metrics."""
    why: str = ""
    """Why there are no areas."""

    @property
    def reaching(self) -> int:
        """Metrics whose area over all values reaches the wanted one."""
        return sum(found.value >= self.spec.wanted for found in self.areas.values())

    @property
    def met(self) -> bool | None:
        """The confirmed area reaches what was wanted; `None` where there is none."""
        return None if self.confirmed is None else self.confirmed.value >= self.spec.wanted


def read_separation(spec: Separation, records: Records) -> SeparationOutcome:
    """Areas of every metric that both sides report."""
    names = _names(spec, records)
    areas: dict[str, Area] = {}
    even: dict[str, tuple[float, float]] = {}
    for name in names:
        sides = [_sample(spec, records, arms, name) for arms in (spec.collapsed, spec.healthy)]
        if not all(side.values for side in sides):
            continue
        areas[name] = area(sides[0], sides[1], direction_of(name))
        halves = [_sample(spec, records, arms, name, parity=0) for arms in (spec.collapsed, spec.healthy)]
        if all(half.values for half in halves):
            found = area(halves[0], halves[1], areas[name].direction).value
            even[name] = (found, _distance(halves[0].values, halves[1].values))
    ranked = sorted(areas, key=lambda name: (-areas[name].value, -even.get(name, (0.0, 0.0))[1], name))
    if not areas:
        return SeparationOutcome(spec, {}, "", None, {}, {}, "no metric has values on both sides")
    # Several separate the one half completely, as a rule: the one whose sides lie furthest apart there is the best.
    best = max(even, key=lambda name: even[name], default="")
    odd = [_sample(spec, records, arms, best, parity=1) for arms in (spec.collapsed, spec.healthy)]
    confirmed = area(odd[0], odd[1], areas[best].direction) if best and all(half.values for half in odd) else None
    shown = _different(ranked)[:MOST_CURVES]
    return SeparationOutcome(
        spec,
        {name: areas[name] for name in ranked},
        best,
        confirmed,
        {name: _by_arm(spec, records, name, areas[name]) for name in shown},
        {name: _curve(spec, records, name, areas[name]) for name in shown},
    )


def _names(spec: Separation, records: Records) -> list[str]:
    names: dict[str, None] = {}
    for arm in spec.healthy:
        for record in records.get(arm, {}).values():
            names |= dict.fromkeys(record.series)
    wanted = spec.metrics or ("*",)
    return [name for name in names if _matches(name, wanted) and not _matches(name, spec.without)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _sample(spec: Separation, records: Records, arms: Sequence[str], metric: str, parity: int | None = None) -> Sample:
    """The values of some arms, only those of even or odd steps if asked."""
    values: list[float] = []
    runs: list[str] = []
    for arm in arms:
        for label, record in records.get(arm, {}).items():
            for point in record.get(metric).numeric:
                late = spec.to_step is not None and point.step > spec.to_step
                if point.step < spec.from_step or late or parity not in (None, point.step % 2):
                    continue
                values.append(float(point.number or 0.0))
                runs.append(label)
    return Sample(tuple(values), tuple(runs))


def _different(ranked: Sequence[str]) -> list[str]:
    """The first of each kind: scopes and variants of one metric would fill a figure with the same curve."""
    kinds: dict[str, str] = {}
    for name in ranked:
        family, last = name.split("/")[0], name.split("/")[-1]
        kinds.setdefault(f"{family}/{re.sub(r'(_head)?_[a-z0-9]+$', '', last)}", name)
    return list(kinds.values())


def _distance(x: Sequence[float], y: Sequence[float]) -> float:
    """Distance of the means in standard deviations within the sides; 0 where no spread says how far apart they are."""
    if min(len(x), len(y)) < 2:
        return 0.0
    within = math.sqrt((variance(x) + variance(y)) / 2)
    return abs(fmean(x) - fmean(y)) / within if within > 0 else 0.0


def _by_arm(spec: Separation, records: Records, metric: str, whole: Area) -> dict[str, Area]:
    healthy = _sample(spec, records, spec.healthy, metric)
    sides = {arm: _sample(spec, records, (arm,), metric) for arm in records if arm not in spec.healthy}
    return {arm: area(side, healthy, whole.direction) for arm, side in sides.items() if side.values}


def _curve(spec: Separation, records: Records, metric: str, whole: Area) -> list[tuple[float, float]]:
    sides = [_sample(spec, records, arms, metric).values for arms in (spec.collapsed, spec.healthy)]
    return roc_curve(sides[0], sides[1], whole.direction)
