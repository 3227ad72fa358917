"""Alarms against falls of success: leads, false alarms of healthy runs, and of simulated ones in which nothing happens.

Promise: counts carry exact limits, and falls without an alarm are counted, too. A fall is larger than the noise of the
evaluations that show it, and a lead is never counted from an evaluation that was still good enough.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.diagnostics.alarms.watch import replay
from heedful.diagnostics.catalogue import direction_of
from heedful.report.record import RunRecord
from heedful.seeds import derive
from heedful.studies.declaration import Study
from heedful.studies.outcomes import Outcomes, Reading, Rows, Table
from heedful.studies.paired import Count
from heedful.types import Metric
from research.detector.drift_free import MetricSteps, drift_free, levels_of

MOST_LISTED = 40
"""Metrics in the table of movers; results.json holds all of them."""

BASELINE_READINGS = 3
"""Readings that say where a metric starts."""

_COSTS = ("alarm/", "time/", "tokens/", "cost/", "regime/")
"""Families of metrics that are no readings of the policy."""

Readings = Sequence[tuple[int, Metric]]
"""One metric by step, ascending."""

Runs = Mapping[str, RunRecord]
"""Label of a run -> its measurements."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Whether alarms come before success falls, and how often they come without reason."""

    title: str
    induced: tuple[str, ...]
    healthy: tuple[str, ...]
    success: str
    """The metric whose fall is to be foreseen."""
    points: float = 0.10
    """Success has fallen when it is this far below its start, beyond the intervals of the evaluations."""
    alarms: tuple[str, ...] = ("alarm/*",)
    """Patterns of names; a value above 0 is a raised alarm."""
    replayed: bool = False
    """Replay the alarms on the measurements with `thresholds`, instead of reading those that the runs recorded."""
    thresholds: AlarmConfig = field(default_factory=AlarmConfig)
    """Thresholds of replayed alarms, and of alarms on simulated series."""
    drift_free: int = 200
    """Simulated series in which nothing happens, made of the levels and the noise of the healthy runs; 0 = none."""
    from_step: int = 0
    """The healthy runs' levels and noise are read from here on: before it they are still learning."""
    correlation: float = 0.5
    """Correlation between the noise of neighbouring simulated readings."""

    @property
    def arms_read(self) -> tuple[str, ...]:
        return (*self.induced, *self.healthy)

    def among(self, arms: Collection[str]) -> Lead | None:
        """With the arms that are left; `None` without any."""
        induced, healthy = (tuple(name for name in side if name in arms) for side in (self.induced, self.healthy))
        return replace(self, induced=induced, healthy=healthy) if induced or healthy else None

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        """The tables of runs, of alarms and of what moves first, and the counts in sentences."""
        found = read_lead(self, {arm.name: outcomes.records([arm.name]) for arm in study.arms})
        of_runs = (
            f"Fallen: {self.success} lies {100 * self.points:g} points below its start and the "
            "intervals leave no doubt. Lead: steps from the first alarm to the evaluation that shows the fall."
        )
        of_movers = (
            "A metric departs when its whole interval lies outside the range of its first three readings, on the "
            "declared side where there is one. Exploratory: with many metrics some depart by chance."
        )
        first = "Which metrics leave their start before success has fallen."
        movers = [[each.metric, str(each.before), str(each.healthy)] for each in found.movers[:MOST_LISTED]]
        tables = (
            Table(f"{self.title}: runs", of_runs, f"{self.title}: each run.", _lead_rows(found)),
            Table(f"{self.title}: alarms", "Counts with exact 95% limits.", "By alarm.", _alarm_rows(found)),
            Table(
                f"{self.title}: what moves first",
                of_movers,
                first,
                [["metric", "before the fall", "in healthy runs"], *movers],
            ),
        )
        return Reading(found, tables, tuple(_warned(found)))


@dataclass(frozen=True, slots=True)
class Fall:
    """Where success has fallen."""

    step: int
    """The first evaluation that shows it."""
    good_until: int
    """The last good evaluation: success fell between it and the evaluation that shows the fall."""
    start: float
    value: float


@dataclass(frozen=True, slots=True)
class RunLead:
    """One run: when it fell and when the alarm came."""

    run: str
    fall: Fall | None
    alarm: int | None
    """The first step at which any alarm was raised."""
    names: tuple[str, ...] = ()
    """The alarms raised at that step."""

    @property
    def lead(self) -> int | None:
        """Steps from the first alarm to the evaluation that shows the fall; negative = too late."""
        return None if self.fall is None or self.alarm is None else self.fall.step - self.alarm


@dataclass(frozen=True, slots=True)
class LeadTable:
    """What alarms did in runs that were made to collapse and in healthy ones."""

    induced: tuple[RunLead, ...]
    healthy: tuple[RunLead, ...]

    @property
    def fallen(self) -> Count:
        """Induced runs whose success fell: only they can be warned of."""
        return Count(sum(run.fall is not None for run in self.induced), len(self.induced))

    @property
    def warned(self) -> Count:
        """Alarms before the evaluation that shows the fall, of the induced runs that fell."""
        return Count(sum(run.lead is not None and run.lead > 0 for run in self.induced), self.fallen.hits)

    @property
    def surely_warned(self) -> Count:
        """Alarms no later than the last evaluation that was still good: not even between the two."""
        known = [(run.alarm, run.fall) for run in self.induced if run.alarm is not None and run.fall is not None]
        return Count(sum(alarm <= fall.good_until for alarm, fall in known), self.fallen.hits)

    @property
    def false_alarms(self) -> Count:
        """Healthy runs in which any alarm was raised."""
        return Count(sum(run.alarm is not None for run in self.healthy), len(self.healthy))


@dataclass(frozen=True, slots=True)
class Mover:
    """One metric: in how many runs it clearly left its start, and whether before success fell."""

    metric: str
    before: Count
    """Induced runs that fell in which it departed before the evaluation that shows the fall."""
    healthy: Count
    """Healthy runs in which it departed as well."""


@dataclass(frozen=True, slots=True)
class LeadOutcome:
    """What a study says of its alarms."""

    spec: Lead
    table: LeadTable
    by_alarm: Mapping[str, tuple[Count, Count]]
    """Alarm -> (before the fall, of the induced runs that fell; raised at all, of the healthy runs)."""
    movers: tuple[Mover, ...]
    """Every metric with intervals, those first that depart before the fall and stay in healthy runs."""
    drift_free: Count | None
    """Simulated series with a false alarm; `None` where there was nothing to simulate from."""
    by_simulated_alarm: Mapping[str, Count]


def read_lead(spec: Lead, records: Mapping[str, Runs]) -> LeadOutcome:
    """Leads and false alarms from the measurements of finished runs, by arm."""
    induced, healthy = (
        {label: record for arm in arms for label, record in records.get(arm, {}).items()}
        for arms in (spec.induced, spec.healthy)
    )
    alarms = {label: _alarms(spec, record) for label, record in {**induced, **healthy}.items()}
    falls = {label: find_fall(_readings(spec.success, record), spec.points) for label, record in induced.items()}
    fallen = {label: fall for label, fall in falls.items() if fall is not None}
    table = LeadTable(
        tuple(RunLead(label, falls[label], *first_alarm(alarms[label])) for label in induced),
        tuple(
            RunLead(label, find_fall(_readings(spec.success, record), spec.points), *first_alarm(alarms[label]))
            for label, record in healthy.items()
        ),
    )
    by_alarm = {
        name: (
            _count(any(step < fall.step for step in alarms[label].get(name, ())) for label, fall in fallen.items()),
            _count(bool(alarms[label].get(name)) for label in healthy),
        )
        for name in dict.fromkeys(name for raised in alarms.values() for name in raised)
    }
    simulated = _simulate(spec, healthy)
    raised = dict.fromkeys(name for each in simulated for name, steps in each.items() if steps)
    return LeadOutcome(
        spec,
        table,
        by_alarm,
        _movers({label: (induced[label], fall) for label, fall in fallen.items()}, induced, healthy),
        _count(any(each.values()) for each in simulated) if simulated else None,
        {name: _count(bool(each.get(name)) for each in simulated) for name in raised},
    )


def _count(hits: Iterable[bool]) -> Count:
    found = list(hits)
    return Count(sum(found), len(found))


def _readings(name: str, record: RunRecord) -> list[tuple[int, Metric]]:
    return [(point.step, point.metric) for point in record.get(name).points]


def find_fall(evaluations: Readings, points: float = 0.10) -> Fall | None:
    """The first evaluation at which success lies `points` or more below its start, beyond doubt.

    Beyond doubt: the 95% upper limit of the difference to the start, from the two evaluations' own intervals (half
    widths added in quadrature), lies below zero. Evaluations without a value are passed over; one without an interval
    cannot show a fall. `None` where success never fell, or was not evaluated twice.
    """
    known = [(step, metric, metric.number) for step, metric in evaluations if metric.number is not None]
    for place, (step, metric, value) in enumerate(known[1:]):
        _, first, start = known[0]
        drop = start - value
        # Rates are shares of episodes: a drop of exactly the asked points must not be lost to rounding.
        if drop < points - 1e-12 or first.low is None or metric.high is None:
            continue
        # The sides that face each other: intervals near 0 and 1 are not symmetric.
        if math.hypot(start - first.low, metric.high - value) < drop:
            return Fall(step, known[place][0], start, value)
    return None


def first_alarm(alarms: Mapping[str, Sequence[int]]) -> tuple[int | None, tuple[str, ...]]:
    """The first step at which any alarm was raised, and the names of those raised then."""
    raised = {name: min(steps) for name, steps in alarms.items() if steps}
    first = min(raised.values(), default=None)
    return first, tuple(sorted(name for name, step in raised.items() if step == first))


def first_departure(readings: Readings, direction: str | None) -> int | None:
    """The first step at which a metric has clearly left where it started; `None` if it never did.

    Clearly: the whole 95% interval of the reading lies outside the range spanned by the intervals of the first three,
    on the side of `direction` (`higher`, `lower`; `None` = either). Readings without an interval are passed over.
    A plain rule for finding out which metrics move early; the alarms have rules of their own.
    """
    bounded = [(step, m.low, m.high) for step, m in readings if m.low is not None and m.high is not None]
    start, later = bounded[:BASELINE_READINGS], bounded[BASELINE_READINGS:]
    if not later:
        return None
    floor, ceiling = min(low for _, low, _ in start), max(high for _, _, high in start)
    departed = (
        step
        for step, low, high in later
        if (direction != "lower" and low > ceiling) or (direction != "higher" and high < floor)
    )
    return next(departed, None)


def _movers(fallen: Mapping[str, tuple[RunRecord, Fall]], induced: Runs, healthy: Runs) -> tuple[Mover, ...]:
    movers = []
    for name in dict.fromkeys(name for record in (*induced.values(), *healthy.values()) for name in record.series):
        if name.startswith(("eval/", *_COSTS)):
            continue
        side = direction_of(name)
        steps = [(first_departure(_readings(name, record), side), fall.step) for record, fall in fallen.values()]
        before = _count(step is not None and step < fall for step, fall in steps)
        moved = _count(first_departure(_readings(name, record), side) is not None for record in healthy.values())
        if before.hits or moved.hits:
            movers.append(Mover(name, before, moved))
    return tuple(sorted(movers, key=lambda m: (m.healthy.hits - m.before.hits, m.metric)))


def _alarms(spec: Lead, record: RunRecord) -> dict[str, list[int]]:
    """The steps at which each alarm stood raised."""
    if spec.replayed:
        return replayed_alarms(spec, _steps(record))
    named = [name for name in record.series if any(fnmatchcase(name, pattern) for pattern in spec.alarms)]
    return {name: [point.step for point in record.get(name).numeric if (point.number or 0) > 0] for name in named}


def replayed_alarms(spec: Lead, run: MetricSteps) -> dict[str, list[int]]:
    """The steps at which each alarm stands raised when this version's alarms read the run."""
    raised: dict[str, list[int]] = {}
    for alarms in replay(run, spec.thresholds):
        for metric in alarms.metrics:
            if any(fnmatchcase(metric.name, pattern) for pattern in spec.alarms):
                steps = raised.setdefault(metric.name, [])
                if (metric.number or 0) > 0:
                    steps.append(alarms.step)
    return raised


def _simulate(spec: Lead, healthy: Runs) -> list[Mapping[str, Sequence[int]]]:
    """The alarms of simulated runs; each takes its levels from one healthy run, in turn."""
    levels = [found for record in healthy.values() if (found := levels_of(_steps(record), spec.from_step))]
    return [
        replayed_alarms(spec, drift_free(levels[n % len(levels)], derive(0, "drift-free", n), spec.correlation))
        for n in range(spec.drift_free if levels else 0)
    ]


def _steps(record: RunRecord) -> MetricSteps:
    by_step: dict[int, dict[str, Metric]] = {}
    for name, series in record.series.items():
        if not name.startswith(_COSTS):
            for point in series.points:
                by_step.setdefault(point.step, {})[name] = point.metric
    return sorted(by_step.items())


def _lead_rows(outcome: LeadOutcome) -> Rows:
    """Every run: where success fell and when the first alarm came."""
    rows = [["run", "kind", "success fell at", "good until", "first alarm", "which", "lead"]]
    for kind, runs in (("induced", outcome.table.induced), ("healthy", outcome.table.healthy)):
        for run in runs:
            fall = run.fall
            rows.append(
                [
                    run.run,
                    kind,
                    "never" if fall is None else f"{fall.step} ({fall.start:.3f} → {fall.value:.3f})",
                    "–" if fall is None else str(fall.good_until),
                    "none" if run.alarm is None else str(run.alarm),
                    ", ".join(name.removeprefix("alarm/") for name in run.names) or "–",
                    "–" if run.lead is None else f"{run.lead:+d}",
                ]
            )
    return rows


def _alarm_rows(outcome: LeadOutcome) -> Rows:
    """Every alarm: before falls, in healthy runs, on simulated ones."""
    rows = [["alarm", "before the fall", "in healthy runs", "in simulated runs without drift"]]
    for name in dict.fromkeys([*outcome.by_alarm, *outcome.by_simulated_alarm]):
        before, healthy = outcome.by_alarm.get(name, (None, None))
        simulated = outcome.by_simulated_alarm.get(name)
        nothing = f"0 of {outcome.drift_free.of}" if outcome.drift_free else "–"
        rows.append([name, str(before or "–"), str(healthy or "–"), str(simulated or nothing)])
    return rows


def _warned(outcome: LeadOutcome) -> list[str]:
    table, spec = outcome.table, outcome.spec
    warned = (
        f"an alarm came before the evaluation that shows it in {table.warned}, no later than the last good evaluation "
        f"in {table.surely_warned}"
        if table.fallen.hits
        else "so there was nothing to warn of"
    )
    simulated = f", {outcome.drift_free} simulated runs without drift" if outcome.drift_free else ""
    sentences = [
        f"{spec.title}: success fell by {100 * spec.points:g} points in {table.fallen} induced runs; {warned}. "
        f"False alarms: {table.false_alarms} healthy runs{simulated}."
    ]
    leads = [run.lead for run in table.induced if run.lead is not None]
    if leads:
        shown = ", ".join(f"{lead:+d}" for lead in sorted(leads))
        sentences.append(f"Leads in steps (negative = after the fall was visible): {shown}.")
    return sentences
