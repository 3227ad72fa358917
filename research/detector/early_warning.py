"""Alarms against falls of success: leads, false alarms of healthy runs, and of simulated ones in which nothing happens.

Promise: counts carry exact limits, and falls without an alarm are counted, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from heedful.diagnostics.alarms.watch import replay
from heedful.diagnostics.catalogue import direction_of
from heedful.report.record import RunRecord
from heedful.seeds import derive
from heedful.studies.analyses import Lead
from heedful.studies.paired import Count
from heedful.types import Metric
from research.detector.drift_free import Level, MetricSteps, drift_free, levels_of
from research.detector.lead import LeadTable, RunLead, find_fall, first_departure, run_lead


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
