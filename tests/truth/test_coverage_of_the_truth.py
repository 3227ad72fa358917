"""Every estimator with an interval against known truths; the page, the flags and the marks that follow from them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.truth import marks
from benchmarks.truth.__main__ import PAGE
from benchmarks.truth.declaration import CASES, ESTIMATORS, NO_INTERVAL
from benchmarks.truth.results import load, run
from benchmarks.truth.simulation import Case, Estimator, Reading, judged, simulate
from benchmarks.truth.table import LEAST, flags, readings_of, with_tables, worst_of
from heedful.diagnostics.catalogue import CATALOGUE, OVER_SEEDS, covers_of, entry_of, is_doubtful, legend_of, mark_of
from heedful.studies.paired import mean_over
from heedful.types import Metric

ROOT = Path(__file__).parents[2]
RESULTS = load()
MARKS = marks.load()
NEVER = 1e-5
"""A chance so small that a right estimator fails in fewer than one of all small simulations in a hundred."""


def agrees(found: Reading, stored: Reading) -> bool:
    """The small simulation may have come from an estimator with the stored coverage and bias."""
    expected = min(stored.coverage, 0.99)
    covered = binom.cdf(found.held, found.intervals, expected) > NEVER if found.intervals else True
    errors = 5 * np.hypot(found.error, stored.error) + 1e-9
    return bool(covered and not abs(found.bias - stored.bias) > errors)


def test_the_declaration_names_every_metric_once_or_says_why_it_has_no_interval() -> None:
    declared = {pattern for estimator in ESTIMATORS for pattern in estimator.covers}
    without = Counter(pattern for patterns in NO_INTERVAL.values() for pattern in patterns.split())
    patterns = {entry.pattern for entry in CATALOGUE}
    assert patterns - declared - without.keys() == set(), "a new metric needs a row in benchmarks/truth/declaration.py"
    assert declared | without.keys() == patterns
    assert not declared & without.keys()
    assert max(without.values()) == 1


def test_a_metric_declared_without_an_interval_has_none_in_a_recorded_run() -> None:
    without = {pattern for patterns in NO_INTERVAL.values() for pattern in patterns.split()}
    seen = 0
    for path in sorted((ROOT / "tests" / "fixtures").rglob("metrics.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for name, reading in json.loads(line)["metrics"].items():
                entry = entry_of(name)
                if isinstance(reading, dict) and reading.get("low") is not None and entry is not None:
                    seen += 1
                    assert entry.pattern not in without, name
    assert seen > 50


def test_every_row_is_judged_in_some_case_and_every_case_judges_a_row() -> None:
    assert [estimator.label for estimator in ESTIMATORS if not estimator.cases] == []
    judged_names = {name for estimator in ESTIMATORS for name in estimator.read}
    for case in CASES.values():
        assert case.truths.keys() & judged_names, case.name
        assert case.batches >= 400


def in_the_suite() -> set[str]:
    """The first and then every tenth of the cases that judge the same rows. The others are proofs."""
    seen: Counter[tuple[str, ...]] = Counter()
    chosen = set()
    for name, case in CASES.items():
        rows = tuple(sorted(case.truths))
        if case.small and seen[rows] % 10 == 0:
            chosen.add(name)
        seen[rows] += bool(case.small)
    return chosen


SMALL = [
    pytest.param(name, marks=() if name in in_the_suite() else pytest.mark.proof)
    for name, case in CASES.items()
    if case.small
]


@pytest.mark.parametrize("name", SMALL)
def test_small_simulations_read_like_the_stored_ones(name: str) -> None:
    case = CASES[name]
    for truth, found in simulate(case, case.small).items():
        stored = RESULTS[name][truth]
        assert found.truth == pytest.approx(stored.truth, rel=1e-4, abs=1e-6)
        assert agrees(found, stored), f"{truth}: {found} against {stored}"


def test_an_estimator_with_too_narrow_intervals_fails() -> None:
    case = CASES["16 tasks x 8, half solved"]

    def draw(rng: np.random.Generator) -> list[Metric]:
        halved = []
        for metric in case.draw(rng):
            if metric.low is not None and metric.high is not None and isinstance(metric.value, float):
                low, high = ((end + metric.value) / 2 for end in (metric.low, metric.high))
                metric = replace(metric, low=low, high=high)
            halved.append(metric)
        return halved

    found = simulate(replace(case, draw=draw), 40)
    assert not agrees(found["success/rate"], RESULTS[case.name]["success/rate"])


def test_a_biased_estimator_fails() -> None:
    case = CASES["16 tasks x 8, half solved"]

    def draw(rng: np.random.Generator) -> list[Metric]:
        return [replace(metric, value=float(metric.value or 0) + 0.1) for metric in case.draw(rng)]

    found = simulate(replace(case, draw=draw), 25)
    assert not agrees(found["success/rate"], RESULTS[case.name]["success/rate"])


def test_a_reading_counts_intervals_and_the_truths_that_they_hold() -> None:
    metrics = [Metric("a", 1.0, 1, 0.0, 2.0), Metric("a", 3.0, 1, 2.5, 3.5), Metric("a", 2.0, 1), Metric("a", None)]
    found = judged(metrics, 1.5)
    assert (found.batches, found.intervals, found.held) == (4, 2, 1)
    assert found.bias == pytest.approx(0.5)
    assert found.coverage == 0.5


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.label)
def test_a_row_below_90_percent_is_flagged_with_its_lowest_coverage(estimator: Estimator) -> None:
    worst = worst_of(estimator, RESULTS).reading.coverage
    assert all(judged.reading.batches >= 400 for judged in readings_of(estimator, RESULTS))
    known = flags()
    told = [known[pattern] for pattern in estimator.covers if pattern in known]
    if worst < LEAST and estimator.covers:
        assert any(re.search(rf"\b{100 * worst:.0f}%", text) for text in told), f"{worst:.3f} is not in {told}"


def test_no_flag_is_without_a_row_that_needs_it() -> None:
    low = [row for row in ESTIMATORS if worst_of(row, RESULTS).reading.coverage < LEAST]
    assert flags().keys() <= {pattern for row in low for pattern in row.covers}


def test_the_table_of_the_page_is_that_of_the_stored_simulations() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page, RESULTS, MARKS) == page, "run python -m benchmarks.truth --keep"
    with pytest.raises(ValueError, match="no line '<!-- table: truth -->'"):
        with_tables("# A page\n", RESULTS, MARKS)


def test_a_stored_case_is_not_simulated_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn: list[int] = []

    def draw(rng: np.random.Generator) -> list[Metric]:
        drawn.append(1)
        value = float(rng.normal())
        return [Metric("mean", value, 1, value - 1.96, value + 1.96)]

    cases = {"normal": Case("normal", draw, {"mean": 0.0}, batches=400)}
    for _ in range(2):
        run(cases, tmp_path / "truth.json")
    assert len(drawn) == 400
    assert load(tmp_path / "truth.json")["normal"]["mean"].coverage == pytest.approx(0.95, abs=0.05)


def reading(name: str, value: float = 0.5, n: int = 64, clusters: float | None = None) -> Metric:
    return Metric(name, value, n, value - 0.1, value + 0.1, clusters=clusters)


@pytest.mark.parametrize(
    ("metric", "doubtful"),
    [
        (reading("eval/val/greedy/success", 0.5, 64), False),
        (reading("eval/val/greedy/success", 1 / 64, 64), True),
        (reading("eval/val/greedy/success", 63 / 64, 64, clusters=1.03), True),
        (reading("eval/val/greedy/success", 2 / 64, 64), False),
        (reading("length/turns", clusters=2.9), True),
        (reading("length/turns", clusters=3.0), False),
        (reading("length/turns"), True),
        (replace(reading("length/turns"), low=None, high=None), False),
        (reading("information/first_turn/mi", 0.3, clusters=1.0), False),
        (reading("information/first_turn/mi", 2.0, clusters=9.0), True),
        (reading("information@judge/any_turn/lake/gap_per_token", clusters=3.9), True),
        (reading("information/first_turn/entropy_marginal", clusters=1.0), False),
        (reading("no/such/metric", clusters=1.0), False),
    ],
)
def test_a_mark_follows_from_the_situation_of_the_reading(metric: Metric, doubtful: bool) -> None:
    assert is_doubtful(metric) == doubtful
    assert mark_of(metric) == (" †" if doubtful else "")


def test_the_legend_says_what_the_marked_intervals_cover_and_why_they_are_marked() -> None:
    healthy, weak = reading("length/turns", clusters=9.0), reading("length/turns", clusters=1.5)
    said = legend_of([healthy, weak, weak, reading("information/first_turn/entropy_marginal")])
    assert said == (
        "† In simulations such an interval held the truth in less than 90% of cases. length/turns: 76% where nearly "
        "all tasks are alike and few differ (marked: fewer than 3 effective clusters)."
    )
    assert legend_of([healthy]) == ""


def test_a_mean_over_three_seeds_is_marked_whatever_the_metric() -> None:
    for name in ("length/turns", "information/first_turn/entropy_marginal"):
        assert mark_of(mean_over(name, [0.2, 0.5, 0.6]), OVER_SEEDS) == " †"
        assert mark_of(mean_over(name, [0.1 * seed for seed in range(10)]), OVER_SEEDS) == ""


@pytest.mark.parametrize("name", ["16 tasks x 8, half solved", "64 independent trials, rate 0.5"])
def test_healthy_batches_are_hardly_marked(name: str) -> None:
    metrics = drawn(name)
    assert sum(map(is_doubtful, metrics)) < 0.2 * len(metrics)


@pytest.mark.parametrize("name", ["16 tasks x 8, 98% solved", "64 independent trials, rate 0.0026"])
def test_batches_of_tasks_that_are_nearly_all_alike_are_mostly_marked(name: str) -> None:
    metrics = [metric for metric in drawn(name) if covers_of(metric.name) and metric.low is not None]
    assert sum(map(is_doubtful, metrics)) > 0.8 * len(metrics)


def test_few_intervals_miss_the_truth_without_a_mark() -> None:
    judged = 0
    for estimator in ESTIMATORS:
        if marks.flagged(estimator):
            for case, found in marks.known(estimator, MARKS):
                judged += 1
                # A case of few intervals may exceed the share by chance.
                allowed = binom.ppf(0.999, found.intervals, marks.MOST_SILENT)
                assert found.silent <= allowed, f"{estimator.label} in {case}: {found}"
    assert judged > 50


def test_marks_are_counted_by_hand() -> None:
    missing, healthy = reading("length/turns", 0.5, clusters=1.0), reading("length/turns", 0.9, clusters=9.0)
    found = marks.counted([missing, healthy, healthy, replace(healthy, low=None)], 0.5)
    assert (found.intervals, found.marked, found.missed, found.silent) == (3, 1, 2, 2)


def drawn(name: str, batches: int = 8) -> list[Metric]:
    """All readings of some batches that the case has a truth of."""
    case, rng = CASES[name], np.random.default_rng(0)
    return [metric for _ in range(batches) for metric in case.draw(rng) if metric.name in case.truths]


@pytest.mark.proof
@pytest.mark.parametrize("name", CASES)
def test_full_simulations_find_the_stored_coverage(name: str, record_property: Callable[[str, object], None]) -> None:
    case = CASES[name]
    record_property("cases", case.batches)
    for truth, found in simulate(case, case.batches).items():
        stored = RESULTS[name][truth]
        assert found.coverage == pytest.approx(stored.coverage, abs=0.01), truth
        assert found.bias == pytest.approx(stored.bias, abs=0.2 * stored.error + 1e-6), truth
