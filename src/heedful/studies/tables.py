"""The tables of a study as rows of text, for the page and for Markdown.

Promise: every number has its interval and its n; a missing number is a dash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from heedful.boundary import clean
from heedful.diagnostics.catalogue import OVER_SEEDS, Doubt
from heedful.report.drawing.numerals import interval, numeral
from heedful.studies.declaration import Study
from heedful.studies.outcomes import Outcomes, Rows, Table
from heedful.studies.paired import PairedDifference
from heedful.types import Metric

MOST_ACROSS = 12
"""Arms that are columns of a table."""


def tables(study: Study, outcomes: Outcomes) -> Iterator[Table]:
    """The tables of a study, in reading order."""
    if study.flat:
        lead = "Success before and after training with its 95% interval; gains are paired by task."
        yield Table("Each seed", lead, "Each seed, with 95% intervals.", run_rows(study, outcomes))
    if outcomes.measures:
        lead = (
            "Mean over seeds with its 95% interval; n counts the seeds. †: these few seeds differ too little in number "
            "to show a rare run. If one run in five collapses, such intervals of 3 seeds hold the true mean in 54%."
        )
        yield Table("Measures", lead, "Mean over seeds with 95% interval; n = seeds.", measure_rows(study, outcomes))
    if study.pairs and outcomes.measures:
        lead = (
            "Arm or pool minus control. Over seeds: Student's interval, and the exact two-sided sign-flip test, which "
            "cannot fall below 2/2^n. Over tasks: would the same policies differ as much on other tasks?"
        )
        yield Table("Paired differences", lead, "Paired differences.", pair_rows(outcomes))
    if study.interactions and outcomes.measures:
        lead = (
            "Does a comparison come out otherwise in another setting? Its difference minus that of another pair, seed "
            "by seed, with the same interval and test."
        )
        caption = "Interactions: paired differences less other ones."
        yield Table("Interactions", lead, caption, interaction_rows(outcomes))
    for reading in outcomes.readings:
        yield from reading.tables


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
    if metric.number is None:
        return "–"
    within = interval(metric, doubt)
    return f"{numeral(metric.number)} [{within}]" if within else numeral(metric.number)


def signed(metric: Metric) -> str:
    """A difference with its interval, signs written out; a dash where there is none."""
    if metric.number is None:
        return "–"
    value, low, high = (_with_sign(number) for number in (metric.number, metric.low, metric.high))
    return f"{value} [{low} to {high}]" if metric.low is not None and metric.high is not None else value


def _with_sign(number: float | None) -> str:
    if number is None:
        return ""
    return f"+{numeral(number)}" if number > 0 else numeral(number)
