"""ROC of every metric between the values of collapsed and of healthy arms.

The best metric is chosen on one half of the runs. Its area is read from the other half, so choosing among many metrics
does not flatter it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from statistics import fmean, variance

from heedful.diagnostics.catalogue import direction_of
from heedful.report.drawing.numerals import numeral
from heedful.report.drawing.panel import DrawnPanel
from heedful.report.record import RunRecord
from heedful.studies.declaration import Study
from heedful.studies.figures import Line, Place, figure
from heedful.studies.outcomes import Outcomes, Reading, Rows, Table
from research.detector.roc import Area, Sample, area, roc_curve

Records = Mapping[str, Mapping[str, RunRecord]]
"""Arm -> label of the run -> its measurements."""

FEWEST_RUNS = 6
"""Runs of each side that confirm a metric. With 5, even complete separation has an interval that reaches one half."""
MOST_CURVES = 6
"""ROC curves kept for the page: those of the best metrics."""


MOST_LISTED = 40
"""Metrics in the table of areas; results.json holds all of them."""


@dataclass(frozen=True, slots=True)
class Separation:
    """ROC analysis: which metrics separate the readings of collapsed arms from those of healthy arms."""

    title: str
    collapsed: tuple[str, ...]
    healthy: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    """Patterns of names, such as information/first_turn/*; empty = every number that both sides report."""
    without: tuple[str, ...] = ("time/*", "tokens/*", "cost/*", "*chance*", "*/mi_ceiling", "forced/*")
    """Patterns of names that are left out."""
    from_step: int = 0
    to_step: int | None = None
    """Readings of earlier and later steps are left out."""
    wanted: float = 0.99
    """The area that the best metric should reach."""

    @property
    def arms_read(self) -> tuple[str, ...]:
        return (*self.collapsed, *self.healthy)

    def among(self, arms: Collection[str]) -> Separation | None:
        """With the arms that are left; `None` where a side has none."""
        sides = (tuple(name for name in side if name in arms) for side in (self.collapsed, self.healthy))
        collapsed, healthy = sides
        return replace(self, collapsed=collapsed, healthy=healthy) if collapsed and healthy else None

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        """The table of areas, ROC curves, areas over the dial, and the verdict on the best metric."""
        found = read_separation(self, {arm.name: outcomes.records([arm.name]) for arm in study.arms})
        lead = (
            f"{', '.join(self.collapsed)} against {', '.join(self.healthy)}. "
            "A direction that was not declared is the one that separates better, which flatters areas near one half."
        )
        table = Table(f"{self.title}: areas", lead, f"{self.title}: areas under the ROC curve.", _area_rows(found))
        figures = (*_areas_over_the_dial(study, found), *_roc_figure(found))
        return Reading(found, (table,), (_separated(found),), figures)


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
    names = dict.fromkeys(n for arm in spec.healthy for record in records.get(arm, {}).values() for n in record.series)
    wanted, left_out = (
        {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}
        for patterns in (spec.metrics or ("*",), spec.without)
    )
    sides = _sides(spec, records, [name for name in names if name in wanted - left_out])
    areas = {name: area(*pair, direction_of(name)) for name, pair in sides.items()}
    if not areas:
        return SeparationOutcome(spec, {}, "", None, {}, {}, "no metric has values on both sides")
    # Every other run of each arm, and the others. Where arms share their seeds, the halves have different ones.
    choosing, confirming = (
        {arm: dict(list(runs.items())[first::2]) for arm, runs in records.items()} for first in (0, 1)
    )
    half = _sides(spec, choosing, areas)
    chosen = {name: area(*pair, direction_of(name)) for name, pair in half.items()}
    distance = {name: _distance(*pair) for name, pair in half.items()}
    # Several separate the one half completely, as a rule: the one whose sides are furthest apart there is the best.
    best = max(chosen, key=lambda name: (chosen[name].value, distance[name]), default="")
    other = _sides(spec, confirming, [best])
    confirmed = area(*other[best], chosen[best].direction) if other else None
    runs = 0 if confirmed is None else min(confirmed.collapsed_runs, confirmed.healthy_runs)
    why = ""
    if runs < FEWEST_RUNS:
        few = f"{runs} on the smaller side, and fewer than {FEWEST_RUNS} cannot tell it from chance"
        confirmed, why = None, f"a metric is chosen on one half of the runs; the other half has {few}"
    ranked = sorted(areas, key=lambda name: (-areas[name].value, -distance.get(name, 0.0), name))
    shown = _different(ranked)[:MOST_CURVES]
    return SeparationOutcome(
        spec,
        {name: areas[name] for name in ranked},
        best,
        confirmed,
        {name: _by_arm(spec, records, name, areas[name]) for name in shown},
        {name: roc_curve(sides[name][0].values, sides[name][1].values, areas[name].direction) for name in shown},
        why,
    )


def _sides(spec: Separation, records: Records, metrics: Iterable[str]) -> dict[str, tuple[Sample, Sample]]:
    """Metric -> its values in the collapsed and in the healthy arms, if both have some."""
    found = {
        name: (_sample(spec, records, spec.collapsed, name), _sample(spec, records, spec.healthy, name))
        for name in metrics
    }
    return {name: pair for name, pair in found.items() if pair[0].values and pair[1].values}


def _sample(spec: Separation, records: Records, arms: Sequence[str], metric: str) -> Sample:
    read = [
        (float(point.number or 0.0), label)
        for arm in arms
        for label, record in records.get(arm, {}).items()
        for point in record.get(metric).numeric
        if spec.from_step <= point.step and (spec.to_step is None or point.step <= spec.to_step)
    ]
    return Sample(tuple(value for value, _ in read), tuple(label for _, label in read))


def _different(ranked: Sequence[str]) -> list[str]:
    """The first of each kind: scopes and variants of one metric would fill a figure with the same curve."""
    kinds: dict[str, str] = {}
    for name in ranked:
        family, last = name.split("/")[0], name.split("/")[-1]
        kinds.setdefault(f"{family}/{re.sub(r'(_head)?_[a-z0-9]+$', '', last)}", name)
    return list(kinds.values())


def _distance(collapsed: Sample, healthy: Sample) -> float:
    """Distance of the means in standard deviations within the sides; 0 where no spread says how far apart they are."""
    x, y = collapsed.values, healthy.values
    if min(len(x), len(y)) < 2:
        return 0.0
    within = math.sqrt((variance(x) + variance(y)) / 2)
    return abs(fmean(x) - fmean(y)) / within if within > 0 else 0.0


def _by_arm(spec: Separation, records: Records, metric: str, whole: Area) -> dict[str, Area]:
    healthy = _sample(spec, records, spec.healthy, metric)
    sides = {arm: _sample(spec, records, (arm,), metric) for arm in records if arm not in spec.healthy}
    return {arm: area(side, healthy, whole.direction) for arm, side in sides.items() if side.values}


def _area_rows(outcome: SeparationOutcome) -> Rows:
    """The areas of the metrics that separate best."""
    rows = [["metric", "AUC", "collapsed is", "readings", "runs", "interval"]]
    for metric, found in list(outcome.areas.items())[:MOST_LISTED]:
        side = found.direction if found.declared else f"{found.direction} (chosen from the data)"
        readings = f"{found.collapsed} against {found.healthy}"
        runs = f"{found.collapsed_runs} against {found.healthy_runs}"
        rows.append([metric, _area_text(found), side, readings, runs, found.why])
    return rows


def _area_text(found: Area) -> str:
    """An area with its interval."""
    within = "" if found.interval is None else f" [{found.interval.low:.3f} to {found.interval.high:.3f}]"
    return f"{found.value:.3f}{within}"


def _separated(outcome: SeparationOutcome) -> str:
    title, wanted = outcome.spec.title, f"{outcome.spec.wanted:g}"
    reaching = f"On all runs {outcome.reaching} of {len(outcome.areas)} metrics reach {wanted}"
    if not outcome.areas:
        return f"{title}: unknown ({outcome.why})."
    if outcome.confirmed is None:
        return f"{title}: no metric is confirmed, because {outcome.why}. {reaching}, by choice or by chance."
    reached = "reaches" if outcome.met else "does not reach"
    return (
        f"{title}: the metric that separates best on one half of the runs is {outcome.best}; on the other half its "
        f"area is {_area_text(outcome.confirmed)}, which {reached} the {wanted} asked for. {reaching}."
    )


def _areas_over_the_dial(study: Study, outcome: SeparationOutcome) -> list[DrawnPanel]:
    """The area under the ROC curve of the best metrics, each arm against the healthy ones, over the arms' levels."""
    levels = {arm.name: arm.level for arm in study.arms if arm.level is not None}
    lines = []
    for hue, (metric, by_arm) in enumerate(outcome.by_arm.items(), start=1):
        places = []
        for arm, level in sorted(levels.items(), key=lambda item: item[1]):
            if arm in by_arm:
                value, (low, high) = by_arm[arm].value, by_arm[arm].interval or (None, None)
                places.append(Place(level, value, low, high, f"{arm}: {numeral(value)}"))
        if places:
            lines.append(Line(metric, hue, tuple(places)))
    if not study.dial or not lines:
        return []
    return [figure(f"{outcome.spec.title}: area by {study.dial}", "AUC", lines, study.dial, (0.0, 1.0))]


def _roc_figure(outcome: SeparationOutcome) -> list[DrawnPanel]:
    """The ROC curves of the best metrics."""
    lines = [
        Line(metric, hue, tuple(Place(x, y) for x, y in points), dots=False)
        for hue, (metric, points) in enumerate(outcome.curves.items(), start=1)
    ]
    if not lines:
        return []
    return [figure(f"{outcome.spec.title}: ROC", "hits", lines, "false alarms", (0.0, 1.0), (0.0, 1.0))]
