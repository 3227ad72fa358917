"""The tables of `python -m research correlate`, with the paper's numbers beside them, as Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from heedful.diagnostics.catalogue import OVER_SEEDS
from heedful.storage import write_whole
from heedful.studies.outcomes import Rows, within_range
from heedful.studies.paired import mean_over
from heedful.studies.tables import markdown_page, markdown_rows, shown, signed
from heedful.types import Metric
from research.correlations.clustered import METHODS, Correlation, Kind, Method, Readings, correlation
from research.correlations.runs import STEP, FoundRuns, RunSeries

INFORMATION = "information/first_turn"
RETRIEVAL = "retrieval/first_turn/accuracy"
VARIANCE = "signal/reward_variance"
LENGTH = "length/response_tokens"
ENTROPY_GIVEN_PROMPT = f"{INFORMATION}/entropy_conditional"

WITH_SUCCESS: Mapping[str, tuple[str, str]] = {
    "mutual information": (f"{INFORMATION}/mi", "+.39"),
    "gap per token": (f"{INFORMATION}/gap_per_token", ""),
    "retrieval accuracy": (RETRIEVAL, ""),
    "H(Z given X)": (ENTROPY_GIVEN_PROMPT, "-.14 to -.11"),
    "H(Z given X) per token": (f"{ENTROPY_GIVEN_PROMPT}_per_token", "-.14 to -.11"),
    "token entropy": ("policy/entropy_per_token", "-.14 to -.11"),
    "variance of rewards": (VARIANCE, ""),
    "tokens per answer": (LENGTH, ""),
    "tokens per thought": ("length/reasoning_tokens", ""),
    "influence of the thought": ("grounding/thought_influence", ""),
    "the step itself": (STEP, ""),
}
"""Title -> metric, and the paper's Spearman correlation with final success. The step itself says nothing of thoughts:
it is what any reading that follows time would get."""

WITH_VARIANCE: Mapping[str, tuple[str, str]] = {
    "reward": ("reward/mean", ".63 / .65"),
    "retrieval accuracy": (RETRIEVAL, ".13 / .15"),
    "tokens per answer": (LENGTH, ".12 / .08"),
    "mutual information": (f"{INFORMATION}/mi", "-.10 / -.17"),
    "H(Z given X)": (ENTROPY_GIVEN_PROMPT, "-.14 / -.18"),
}
"""Title -> metric, and the paper's correlations with the variance of rewards, Spearman's / Pearson's."""

COURSES: Mapping[str, str] = {
    "variance of rewards": VARIANCE,
    "mixed groups": "signal/mixed",
    "solved groups (easy)": "signal/solved",
    "failed groups (hard)": "signal/failed",
    "unpaid groups": "signal/unpaid",
    "tokens per answer": LENGTH,
    "tokens per thought": "length/reasoning_tokens",
}
"""Title -> metric, read at the start and at the end of the runs."""

COURSE_SHARE = 0.2
"""Share of a run's steps that counts as its start, and as its end."""


FEWEST_EVALUATIONS = 10
"""Of a run, for the views of the next one. With fewer, deviations from the run's own mean depend on each other."""


@dataclass(frozen=True, slots=True)
class View:
    """One way to correlate a reading with success."""

    title: str
    kind: Kind
    columns: tuple[int, ...]
    """Of `RunSeries.at_evaluations`: what is correlated, and what is held fixed."""
    least: int = 2
    """Rows that a run needs."""


VIEWS = (
    View("all", "all", (0, 1)),
    View("within runs", "within", (0, 1)),
    View("beyond the course", "beyond", (0, 1)),
    View("next, within runs", "within", (0, 2), FEWEST_EVALUATIONS - 1),
    View("next given now", "within", (0, 2, 1), FEWEST_EVALUATIONS - 1),
)
"""`between runs` and `between runs of a seed` come beside them: the run's mean reading with its last success."""

BY_STEP: Mapping[str, Kind] = {
    "all": "all",
    "within runs": "within",
    "beyond the course": "beyond",
    "between runs": "between",
}
"""Views of two readings of the same step."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One correlation of one table."""

    table: str
    metric: str
    title: str
    view: str
    method: Method
    found: Correlation
    paper: str


def read_correlations(runs: Sequence[RunSeries], success: str) -> list[Entry]:
    """Every correlation of both tables."""
    entries = []
    for title, (metric, paper) in WITH_SUCCESS.items():
        entries += success_entries(runs, success, metric, title, paper)
    for title, (metric, paper) in WITH_VARIANCE.items():
        readings = _readings(runs, [run.at_steps(metric, VARIANCE) for run in runs])
        for view_title, kind in BY_STEP.items():
            entries += _both("variance", metric, title, paper, view_title, readings, kind)
    return entries


def success_entries(runs: Sequence[RunSeries], success: str, metric: str, title: str, paper: str = "") -> list[Entry]:
    """One reading with success, in every view, by both methods."""
    rows = [run.at_evaluations(success, metric) for run in runs]
    named = partial(_both, "success", metric, title, paper)
    entries = []
    for view in VIEWS:
        readings = _readings(runs, [each[:, [*view.columns, -1]] for each in rows])
        entries += named(view.title, readings, view.kind, view.least)
    ends = _readings(runs, [_end(each) for each in rows])
    entries += named("between runs", ends, "between")
    # Runs of one seed alone are compared with each other, so the tasks that they share cannot make a correlation.
    of_a_seed = replace(ends, stratum_U=ends.set_U, set_U=np.arange(len(runs)))
    return entries + named("between runs of a seed", of_a_seed, "between")


def _readings(runs: Sequence[RunSeries], rows: Sequence[np.ndarray]) -> Readings:
    """`rows` of each run: the values, then the step."""
    _, stratum_U = np.unique([run.stratum for run in runs], return_inverse=True)
    sets = sorted({(run.stratum, run.seed) for run in runs})
    set_U = np.array([sets.index((run.stratum, run.seed)) for run in runs])
    all_rows = np.concatenate(rows)
    numbers = np.repeat(np.arange(len(runs)), [len(each) for each in rows])
    return Readings(all_rows[:, :-1], numbers, stratum_U, set_U, all_rows[:, -1])


def _end(rows: np.ndarray) -> np.ndarray:
    """The mean reading of a run, its last success, and no step, as one row."""
    known = rows[~np.isnan(rows[:, 0])]
    return np.array([[known[:, 0].mean(), rows[-1, 1], 0.0]]) if len(known) else np.array([[np.nan, np.nan, 0.0]])


def _both(
    table: str, metric: str, title: str, paper: str, view: str, readings: Readings, kind: Kind, least: int = 2
) -> list[Entry]:
    return [
        Entry(table, metric, title, view, method, correlation(readings, kind, method, least=least), paper)
        for method in METHODS
    ]


def correlation_rows(entries: Sequence[Entry], table: str, method: Method) -> Rows:
    """One row per metric, one column per view, the paper's number at the end."""
    chosen = [entry for entry in entries if entry.table == table and entry.method == method]
    views = list(dict.fromkeys(entry.view for entry in chosen))
    rows = [["reading", *views, "runs", "readings", "paper"]]
    for title in dict.fromkeys(entry.title for entry in chosen):
        of_title = {entry.view: entry for entry in chosen if entry.title == title}
        first = of_title[views[0]]
        counts = [str(first.found.runs), str(first.found.readings)]
        found = [of_title[view].found for view in views]
        cells = [signed(Metric("correlation", each.value, each.runs, each.low, each.high, each.why)) for each in found]
        rows.append([title, *cells, *counts, first.paper or "–"])
    return rows


def course_rows(runs: Sequence[RunSeries]) -> Rows:
    """Start, end and change of each course, by stratum: means over seeds, each the mean of its runs."""
    rows = [["environment", "reading", "runs", "seeds", "start", "end", "change", "change in percent"]]
    for stratum in sorted({run.stratum for run in runs}):
        for title, metric in COURSES.items():
            found = [(run.seed, run.course(metric, COURSE_SHARE)) for run in runs if run.stratum == stratum]
            ends = [(seed, *each) for seed, each in found if each is not None]
            if not ends:
                continue
            starts, lasts = [(seed, start) for seed, start, _ in ends], [(seed, last) for seed, _, last in ends]
            changes = [(seed, last - start) for seed, start, last in ends]
            percent = [(seed, 100 * (last / start - 1)) for seed, start, last in ends if start > 0]
            means = [shown(_over_seeds(metric, values), OVER_SEEDS) for values in (starts, lasts)]
            signs = [signed(_over_seeds("change", values)) for values in (changes, percent)]
            rows.append([stratum, title, str(len(ends)), str(len({seed for seed, _ in starts})), *means, *signs])
    return rows


def _over_seeds(name: str, values: Sequence[tuple[int, float]]) -> Metric:
    """Student's interval over the seeds' means: runs of one seed share their tasks."""
    seeds = dict.fromkeys(seed for seed, _ in values)
    return within_range(mean_over(name, [fmean(value for its, value in values if its == seed) for seed in seeds]))


def markdown(found: FoundRuns, entries: Sequence[Entry], success: str) -> str:
    """The page."""
    strata = {name: sum(run.stratum == name for run in found.runs) for name in sorted({r.stratum for r in found.runs})}
    listed = "; ".join(f"{count} of {name}" for name, count in strata.items())
    sets = len({(run.stratum, run.seed) for run in found.runs})
    lines = [
        "# What goes with success",
        "",
        f"{len(found.runs)} finished runs: {listed}. Left out: {len(found.unfinished)} without a verdict, "
        f"{len(found.copies)} with the numbers of another run.",
        f"Success is `{success}`. Intervals are 95%. They rest on {sets} sets of runs, since runs of one environment "
        "and seed meet the same tasks. The bootstrap draws whole sets within their environment.",
        "",
        "- **all**: all evaluations of all runs at once. **within runs**: deviations from the run's own mean.",
        "- **beyond the course**: deviations from the mean of all runs of the environment at the same step as well. "
        "What only follows time has none, and the step itself shows what such a reading gets within runs.",
        "- **next**: the reading with success at the next evaluation. **next given now**: the same with success now "
        "held fixed. Compare both with those of the step itself. Only runs with at least "
        f"{FEWEST_EVALUATIONS} evaluations count. With few evaluations **next** reads too low: by .15 in simulated "
        "runs of 12.",
        "- **between runs**: the run's mean reading with its last success, among runs of one environment. **of a "
        "seed**: among runs of one environment and seed, which meet the same tasks. The interval draws single runs. "
        "With three runs of a seed it reads too low: by .1 in simulated studies where the truth is .6.",
        "- Runs of one study share their initial model, so they are more alike than independent runs would be.",
    ]
    for table, heading, paper in (
        ("success", "Correlation with success", "The paper: final success, Spearman, number of runs not stated."),
        ("variance", "Correlation with the variance of rewards, by training step", "The paper: Spearman / Pearson."),
    ):
        for method in METHODS:
            lines += ["", f"## {heading}, {method.capitalize()}", "", paper, ""]
            lines += markdown_rows(correlation_rows(entries, table, method))
    lines += [
        "",
        "## From the start to the end of training",
        "",
        f"Start and end are the first and the last {COURSE_SHARE:.0%} of the steps. The paper: tokens per answer "
        "fall by 5 to 66% in eight environments.",
        "",
        *markdown_rows(course_rows(found.runs)),
    ]
    return markdown_page(lines)


def write_correlations(out: Path, found: FoundRuns, success: str) -> str:
    """Write `correlations.json` and `correlations.md` into the folder; returns the page.

    Raises ValueError for a single run, and where no run has the named success.
    """
    if len(found.runs) < 2:
        raise ValueError(
            f"Expected at least two finished runs, found {found.runs[0].name} alone. Correlations are over runs. Name "
            "further folders, or read this run with `heedful report`."
        )
    if not any(success in run.series for run in found.runs):
        raise ValueError(
            f"Expected readings of {success} in the runs, found none in all {len(found.runs)}. Name a metric of their "
            "metrics.jsonl with --success."
        )
    entries = read_correlations(found.runs, success)
    page = markdown(found, entries, success)
    out.mkdir(parents=True, exist_ok=True)
    tree = {
        "success": success,
        "runs": [{"run": run.name, "environment": run.stratum, "seed": run.seed} for run in found.runs],
        "unfinished": list(found.unfinished),
        "copies": list(found.copies),
        "correlations": [asdict(entry) for entry in entries],
        "courses": course_rows(found.runs),
    }
    write_whole(out / "correlations.json", json.dumps(tree, indent=1) + "\n")
    write_whole(out / "correlations.md", page)
    return page
