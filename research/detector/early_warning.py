"""Alarms against falls of success: leads, false alarms of healthy runs, and of simulated ones in which nothing happens.

Promise: counts carry exact limits, and falls without an alarm are counted, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from research.detector.drift_free import Level, MetricSteps, drift_free, levels_of
from research.detector.lead import LeadTable, RunLead, find_fall, first_departure, run_lead

MOST_LISTED = 40
"""Metrics in the table of movers; results.json holds all of them."""


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
        tables = (
            Table(f"{self.title}: runs", of_runs, f"{self.title}: each run.", _lead_rows(found)),
            Table(f"{self.title}: alarms", "Counts with exact 95% limits.", "By alarm.", _alarm_rows(found)),
            Table(f"{self.title}: what moves first", of_movers, first, _mover_rows(found)),
        )
        return Reading(found, tables, tuple(_warned(found)))


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


def read_lead(spec: Lead, records: Mapping[str, Mapping[str, RunRecord]]) -> LeadOutcome:
    """Leads and false alarms from the measurements of finished runs."""
    induced, healthy = (_runs(arms, records) for arms in (spec.induced, spec.healthy))
    table = LeadTable(
        tuple(_lead(spec, label, record) for label, record in induced.items()),
        tuple(_lead(spec, label, record) for label, record in healthy.items()),
    )
    simulated = _simulate(spec, list(healthy.values())) if spec.drift_free else []
    raised = dict.fromkeys(name for alarms in simulated for name, steps in alarms.items() if steps)
    return LeadOutcome(
        spec,
        table,
        _by_alarm(spec, induced, healthy),
        _movers(spec, induced, healthy),
        Count(sum(any(alarms.values()) for alarms in simulated), len(simulated)) if simulated else None,
        {name: Count(sum(bool(a.get(name)) for a in simulated), len(simulated)) for name in raised},
    )


def _runs(arms: Sequence[str], records: Mapping[str, Mapping[str, RunRecord]]) -> dict[str, RunRecord]:
    return {label: record for arm in arms for label, record in records.get(arm, {}).items()}


def _evaluations(spec: Lead, record: RunRecord) -> list[tuple[int, Metric]]:
    return [(point.step, point.metric) for point in record.get(spec.success).points]


def _alarms(spec: Lead, record: RunRecord) -> dict[str, list[int]]:
    """The steps at which each alarm stood raised."""
    if spec.replayed:
        return replayed_alarms(spec, _steps(record))
    named = [name for name in record.series if any(fnmatchcase(name, pattern) for pattern in spec.alarms)]
    return {name: [point.step for point in record.get(name).numeric if (point.number or 0) > 0] for name in named}


def _lead(spec: Lead, label: str, record: RunRecord) -> RunLead:
    return run_lead(label, _evaluations(spec, record), _alarms(spec, record), spec.points)


def _by_alarm(
    spec: Lead, induced: Mapping[str, RunRecord], healthy: Mapping[str, RunRecord]
) -> dict[str, tuple[Count, Count]]:
    found = {}
    names = dict.fromkeys(name for r in (*induced.values(), *healthy.values()) for name in _alarms(spec, r))
    for name in names:
        fallen = [(record, find_fall(_evaluations(spec, record), spec.points)) for record in induced.values()]
        before = [
            any(step < fall.step for step in _alarms(spec, record).get(name, ())) for record, fall in fallen if fall
        ]
        without = [bool(_alarms(spec, record).get(name)) for record in healthy.values()]
        found[name] = (Count(sum(before), len(before)), Count(sum(without), len(without)))
    return found


def _movers(spec: Lead, induced: Mapping[str, RunRecord], healthy: Mapping[str, RunRecord]) -> tuple[Mover, ...]:
    falls = {label: find_fall(_evaluations(spec, record), spec.points) for label, record in induced.items()}
    movers = []
    names = dict.fromkeys(name for record in (*induced.values(), *healthy.values()) for name in record.series)
    for name in names:
        if name.startswith(("alarm/", "eval/", "time/", "tokens/", "cost/", "regime/")):
            continue
        before = [_departs_before(name, induced[label], fall.step) for label, fall in falls.items() if fall is not None]
        moved = [_departure(name, record) is not None for record in healthy.values()]
        if any(before) or any(moved):
            movers.append(Mover(name, Count(sum(before), len(before)), Count(sum(moved), len(moved))))
    return tuple(sorted(movers, key=lambda m: (m.healthy.hits - m.before.hits, m.metric)))


def _departure(name: str, record: RunRecord) -> int | None:
    return first_departure([(p.step, p.metric) for p in record.get(name).points], direction_of(name))


def _departs_before(name: str, record: RunRecord, fall: int) -> bool:
    step = _departure(name, record)
    return step is not None and step < fall


def _simulate(spec: Lead, healthy: Sequence[RunRecord]) -> list[Mapping[str, Sequence[int]]]:
    """The alarms of simulated runs; each takes its levels from one healthy run, in turn."""
    levels: list[list[Level]] = [found for record in healthy if (found := levels_of(_steps(record), spec.from_step))]
    if not levels:
        return []
    series = (
        drift_free(levels[number % len(levels)], derive(0, "drift-free", number), spec.correlation)
        for number in range(spec.drift_free)
    )
    return [replayed_alarms(spec, run) for run in series]


def replayed_alarms(spec: Lead, run: MetricSteps) -> dict[str, list[int]]:
    """The steps at which each alarm stands raised when this version's alarms read the run."""
    raised: dict[str, list[int]] = {}
    for alarms in replay(run, spec.thresholds):
        for metric in alarms.metrics:
            if any(fnmatchcase(metric.name, pattern) for pattern in spec.alarms):
                steps = raised.setdefault(metric.name, [])
                if isinstance(metric.value, int | float) and metric.value > 0:
                    steps.append(alarms.step)
    return raised


def _steps(record: RunRecord) -> MetricSteps:
    by_step: dict[int, dict[str, Metric]] = {}
    for name, series in record.series.items():
        if not name.startswith(("alarm/", "time/", "tokens/", "cost/", "regime/")):
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


def _mover_rows(outcome: LeadOutcome) -> Rows:
    """The metrics that leave their start before success has fallen."""
    rows = [["metric", "before the fall", "in healthy runs"]]
    return rows + [[m.metric, str(m.before), str(m.healthy)] for m in outcome.movers[:MOST_LISTED]]


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
