"""ROC of every metric between the values of collapsed and of healthy arms.

The best metric is chosen on one half of the runs. Its area is read from the other half, so choosing among many metrics
does not flatter it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import fmean, variance

from heedful.diagnostics.catalogue import Trend, direction_of
from heedful.report.record import RunRecord
from heedful.studies.analyses import Separation
from research.detector.roc import Area, Sample, area, roc_curve

Records = Mapping[str, Mapping[str, RunRecord]]
"""Arm -> label of the run -> its measurements."""

FEWEST_RUNS = 6
"""Runs of each side that confirm a metric. With 5, even complete separation has an interval that reaches one half."""
MOST_CURVES = 6
"""ROC curves kept for the page: those of the best metrics."""


@dataclass(frozen=True, slots=True)
class SeparationOutcome:
    """The areas of all metrics, best first."""

    spec: Separation
    areas: Mapping[str, Area]
    best: str
    """The metric that separates best on the runs that choose (every other run of each arm). Empty where none can."""
    confirmed: Area | None
    """Its area on all other runs. `None` where they are fewer than `FEWEST_RUNS` on a side, or lack the metric."""
    by_arm: Mapping[str, Mapping[str, Area]]
    """Metric -> collapsed arm -> area against the healthy arms, for the best metrics."""
    curves: Mapping[str, Sequence[tuple[float, float]]]
    """Metric -> (false alarm rate, hit rate), for the best metrics."""
    why: str = ""
    """Why there are no areas, or why none is confirmed."""

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
    areas = _areas(spec, records)
    if not areas:
        return SeparationOutcome(spec, {}, "", None, {}, {}, "no metric has values on both sides")
    choosing, confirming = _halves(records)
    found = {name: one for name in areas if (one := _read(spec, choosing, name, direction_of(name)))}
    chosen = {name: (one.value, _distance(*_values(spec, choosing, name))) for name, one in found.items()}
    # Several separate the one half completely, as a rule: the one whose sides are furthest apart there is the best.
    best = max(chosen, key=lambda name: chosen[name], default="")
    confirmed = _read(spec, confirming, best, found[best].direction) if best else None
    runs = 0 if confirmed is None else min(confirmed.collapsed_runs, confirmed.healthy_runs)
    why = ""
    if runs < FEWEST_RUNS:
        confirmed, why = None, f"a metric is chosen on one half of the runs; the other half has {_few(runs)}"
    ranked = sorted(areas, key=lambda name: (-areas[name].value, -chosen.get(name, (0.0, 0.0))[1], name))
    shown = _different(ranked)[:MOST_CURVES]
    return SeparationOutcome(
        spec,
        {name: areas[name] for name in ranked},
        best,
        confirmed,
        {name: _by_arm(spec, records, name, areas[name]) for name in shown},
        {name: _curve(spec, records, name, areas[name]) for name in shown},
        why,
    )


def _areas(spec: Separation, records: Records) -> dict[str, Area]:
    found = {name: _read(spec, records, name, direction_of(name)) for name in _names(spec, records)}
    return {name: one for name, one in found.items() if one is not None}


def _read(spec: Separation, records: Records, metric: str, direction: Trend | None) -> Area | None:
    """The area over the runs of these records; `None` where a side has no values."""
    sides = [_sample(spec, records, arms, metric) for arms in (spec.collapsed, spec.healthy)]
    return area(sides[0], sides[1], direction) if all(side.values for side in sides) else None


def _values(spec: Separation, records: Records, metric: str) -> tuple[Sequence[float], Sequence[float]]:
    collapsed, healthy = (_sample(spec, records, arms, metric).values for arms in (spec.collapsed, spec.healthy))
    return collapsed, healthy


def _halves(records: Records) -> tuple[Records, Records]:
    """Every other run of each arm, and the others. Where arms share their seeds, the halves have different ones."""
    choosing, confirming = (
        {arm: dict(list(runs.items())[first::2]) for arm, runs in records.items()} for first in (0, 1)
    )
    return choosing, confirming


def _few(runs: int) -> str:
    return f"{runs} on the smaller side, and fewer than {FEWEST_RUNS} cannot tell it from chance"


def _names(spec: Separation, records: Records) -> list[str]:
    names: dict[str, None] = {}
    for arm in spec.healthy:
        for record in records.get(arm, {}).values():
            names |= dict.fromkeys(record.series)
    wanted = spec.metrics or ("*",)
    return [name for name in names if _matches(name, wanted) and not _matches(name, spec.without)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _sample(spec: Separation, records: Records, arms: Sequence[str], metric: str) -> Sample:
    values: list[float] = []
    runs: list[str] = []
    for arm in arms:
        for label, record in records.get(arm, {}).items():
            for point in record.get(metric).numeric:
                late = spec.to_step is not None and point.step > spec.to_step
                if point.step < spec.from_step or late:
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
    return roc_curve(*_values(spec, records, metric), whole.direction)
