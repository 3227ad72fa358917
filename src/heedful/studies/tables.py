"""The tables of a study as rows of text, for the page and for Markdown.

Promise: every number has its interval and its n; a missing number is a dash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from heedful.boundary import clean
from heedful.diagnostics.catalogue import OVER_SEEDS, Doubt
from heedful.report.drawing.numerals import interval, numeral
from heedful.studies.declaration import Study
from heedful.studies.factorial import FactorialOutcome
from heedful.studies.outcomes import Outcomes
from heedful.studies.paired import PairedDifference
from heedful.types import Metric
from research.detector.candidates import HuntOutcome
from research.detector.early_warning import LeadOutcome
from research.detector.roc import Area
from research.detector.separation import SeparationOutcome

MOST_LISTED = 40
"""Metrics in the tables of areas and of movers; results.json holds all of them."""

MOST_ACROSS = 12
"""Arms that are columns of a table."""

Rows = list[list[str]]
"""A table; its first row is the header."""


def measure_rows(study: Study, outcomes: Outcomes) -> Rows:
    """Every measure of every arm and pool. A study of many arms has one row per arm, others one row per measure."""
    columns = [["measure", *(arm.name for arm in study.arms), *(pool.name for pool in study.pools)]]
    for outcome in outcomes.measures:
        cells = []
        for arm in outcome.arms:
            reached = f"; reached in {arm.reached}" if arm.reached is not None else ""
            cells.append(f"{shown(arm.mean, OVER_SEEDS)} (n {arm.mean.n or 0}{reached})")
        columns.append([outcome.measure.title, *cells])
    if len(columns[0]) - 1 <= MOST_ACROSS:
        return columns
    rows = [list(row) for row in zip(*columns, strict=True)]
    return [["arm", *rows[0][1:]], *rows[1:]]


def run_rows(study: Study, outcomes: Outcomes) -> Rows:
    """Every measure of every run of a study with a single arm, and the regime that the run's verdict names."""
    rows = [["seed", *(outcome.measure.title for outcome in outcomes.measures), "regime"]]
    found = {each.run.seed: each.record for each in outcomes.runs}
    for seed in study.seeds:
        readings = [outcome.arms[0].readings.get(seed) for outcome in outcomes.measures]
        form = [signed if outcome.measure.when == "change" else shown for outcome in outcomes.measures]
        cells = ["–" if metric is None else text(metric) for text, metric in zip(form, readings, strict=True)]
        verdict = found[seed].verdict if seed in found else None
        over = verdict.regime if verdict else "stopped by an alarm" if seed in found else "unfinished"
        rows.append([str(seed), *cells, over])
    return rows


def pair_rows(outcomes: Outcomes) -> Rows:
    """Every measure of every pair."""
    rows = [["measure", "pair", "difference over seeds", "n", "sign-flip p", "difference over tasks"]]
    for outcome in outcomes.measures:
        for value in outcome.pairs:
            tasks = "–" if value.over_tasks is None else signed(value.over_tasks)
            rows.append([outcome.measure.title, str(value.pair), *_over_seeds(value.over_seeds), tasks])
    return rows


def interaction_rows(outcomes: Outcomes) -> Rows:
    """Every measure of every interaction."""
    rows = [["measure", "pair, less another", "difference over seeds", "n", "sign-flip p"]]
    return rows + [
        [outcome.measure.title, str(value.pair), *_over_seeds(value.over_seeds)]
        for outcome in outcomes.measures
        for value in outcome.interactions
    ]


def _over_seeds(difference: PairedDifference) -> list[str]:
    p_value = "–" if difference.p_value is None else f"{difference.p_value:.3g}"
    return [signed(difference.mean), str(difference.mean.n or 0), p_value]


def hunt_rows(outcome: HuntOutcome) -> Rows:
    """Every run, those that lost most first."""
    rows = [["run", "metric", "start", "lowest, replies valid", "lost", "at step", "valid replies", "candidate"]]
    for run in sorted(outcome.runs, key=lambda each: -each.fall.lost if each.fall else 1.0):
        fall = run.fall
        cells = ["–"] * 6
        if fall is not None:
            figures = numeral(fall.start), numeral(fall.lowest), f"{fall.lost:.0%}", str(fall.step)
            cells = [fall.metric, *figures, f"{fall.valid:.0%}"]
        rows.append([run.run, *cells, "yes" if run.candidate else "no" if fall else "not judged"])
    return rows


def factorial_rows(outcome: FactorialOutcome) -> Rows:
    """Every measure, with the effect of every factor."""
    rows = [["measure", "arms", *(f"{factor.name} against {factor.against}" for factor in outcome.spec.factors)]]
    for title, effects in outcome.effects.items():
        rows.append([title, str(effects[0].n or 0), *map(signed, effects)])
    return rows


def area_rows(outcome: SeparationOutcome) -> Rows:
    """The areas of the metrics that separate best."""
    rows = [["metric", "AUC", "collapsed is", "readings", "runs", "interval"]]
    for metric, found in list(outcome.areas.items())[:MOST_LISTED]:
        side = found.direction if found.declared else f"{found.direction} (chosen from the data)"
        readings = f"{found.collapsed} against {found.healthy}"
        runs = f"{found.collapsed_runs} against {found.healthy_runs}"
        rows.append([metric, area_text(found), side, readings, runs, found.why])
    return rows


def lead_rows(outcome: LeadOutcome) -> Rows:
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


def alarm_rows(outcome: LeadOutcome) -> Rows:
    """Every alarm: before falls, in healthy runs, on simulated ones."""
    rows = [["alarm", "before the fall", "in healthy runs", "in simulated runs without drift"]]
    for name in dict.fromkeys([*outcome.by_alarm, *outcome.by_simulated_alarm]):
        before, healthy = outcome.by_alarm.get(name, (None, None))
        simulated = outcome.by_simulated_alarm.get(name)
        nothing = f"0 of {outcome.drift_free.of}" if outcome.drift_free else "–"
        rows.append([name, str(before or "–"), str(healthy or "–"), str(simulated or nothing)])
    return rows


def mover_rows(outcome: LeadOutcome) -> Rows:
    """The metrics that leave their start before success has fallen."""
    rows = [["metric", "before the fall", "in healthy runs"]]
    return rows + [[m.metric, str(m.before), str(m.healthy)] for m in outcome.movers[:MOST_LISTED]]


def markdown_rows(rows: Rows) -> list[str]:
    """A table as Markdown."""
    header, *body = rows
    cells = [header, ["---"] * len(header), *body]
    return [f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in row)} |" for row in cells]


def markdown_page(lines: Sequence[str]) -> str:
    """Lines as a Markdown page. Foreign text on it begins no HTML, and control characters are written as escapes."""
    return clean(re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", "\n".join(lines).rstrip())) + "\n"


def shown(metric: Metric, doubt: Doubt | None = None) -> str:
    """A value with its interval; a dash where there is none. `doubt`: as for `interval`."""
    if not isinstance(metric.value, int | float):
        return "–"
    within = interval(metric, doubt)
    return f"{numeral(metric.value)} [{within}]" if within else numeral(metric.value)


def signed(metric: Metric) -> str:
    """A difference with its interval, signs written out; a dash where there is none."""
    if not isinstance(metric.value, int | float):
        return "–"
    value, low, high = (_with_sign(number) for number in (metric.value, metric.low, metric.high))
    return f"{value} [{low} to {high}]" if metric.low is not None and metric.high is not None else value


def _with_sign(number: float | None) -> str:
    if number is None:
        return ""
    return f"+{numeral(number)}" if number > 0 else numeral(number)


def area_text(found: Area) -> str:
    """An area with its interval."""
    within = "" if found.interval is None else f" [{found.interval.low:.3f} to {found.interval.high:.3f}]"
    return f"{found.value:.3f}{within}"
