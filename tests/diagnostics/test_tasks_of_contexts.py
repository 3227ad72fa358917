"""Intervals over tasks, where several contexts are of one task."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from channels import by_name, random_scores

from heedful.diagnostics.cross_scores.information import information
from heedful.diagnostics.cross_scores.score_matrix import select_rows
from heedful.diagnostics.statistics.intervals import jackknife_interval, rate_interval
from heedful.types import CrossScores, Metric

CONTEXTS = 32
LEAD = 1.0
"""The true gap: what the own context adds to a thought's score, mean over tasks."""


def contexts_of(rng: np.random.Generator, tasks: int) -> CrossScores:
    """One thought for each context. Contexts of one task lead by about as much as each other."""
    task_M = np.arange(CONTEXTS) % tasks
    scores = rng.normal(scale=0.3, size=(CONTEXTS, CONTEXTS))
    scores[np.arange(CONTEXTS), np.arange(CONTEXTS)] += LEAD + rng.normal(scale=0.5, size=tasks)[task_M]
    return CrossScores(scores, [1] * CONTEXTS, list(range(CONTEXTS)), tasks_M=[f"task-{task}" for task in task_M])


def found_in(scores: CrossScores) -> dict[str, Metric]:
    return by_name(information(scores, "any_turn", np.random.default_rng(0)).metrics)


def covered(tasks: int, batches: int) -> float:
    rng = np.random.default_rng(tasks)
    gaps = [found_in(contexts_of(rng, tasks))["gap_per_token"] for _ in range(batches)]
    return float(np.mean([gap.low <= LEAD <= gap.high for gap in gaps]))


def test_the_gap_is_covered_where_contexts_share_their_tasks() -> None:
    assert covered(8, 40) >= 0.9


@pytest.mark.proof
@pytest.mark.parametrize("tasks", [32, 16, 8])
def test_the_gap_is_covered_where_contexts_share_their_tasks_at_full_size(
    tasks: int, record_property: Callable[[str, object], None]
) -> None:
    record_property("cases", 500)
    assert 0.92 <= covered(tasks, 500) <= 0.98


def test_every_interval_equals_the_one_recomputed_without_each_task_in_turn() -> None:
    scores = random_scores(3)
    tasks = [f"task-{column % 4}" for column in scores.own_M]
    found = found_in(replace(scores, tasks_M=tasks))
    plain = found_in(scores)
    assert {name: metric.value for name, metric in found.items()} == {name: one.value for name, one in plain.items()}
    deleted = [found_in(select_rows(scores, [task != left_out for task in tasks])) for left_out in sorted(set(tasks))]
    for name in ("mi", "mi_loo", "gap_per_token", "entropy_marginal", "zscore_tempered", "accuracy", "accuracy_2way"):
        values_without = np.array([without[name].value for without in deleted])
        low, high = jackknife_interval(found[name].value, values_without)
        if name.startswith("accuracy"):
            low, high = rate_interval(found[name].value, values_without, len(tasks))
        if name == "mi":
            high = min(high, found["mi_ceiling"].value)
        assert (found[name].low, found[name].high) == pytest.approx((low, high))
        assert (found[name].low, found[name].high) != pytest.approx((plain[name].low, plain[name].high))


def test_prompts_that_are_tasks_of_their_own_have_the_same_intervals_either_way() -> None:
    scores = random_scores(4)
    plain, found = found_in(scores), found_in(replace(scores, tasks_M=[str(column) for column in scores.own_M]))
    for name, metric in plain.items():
        assert found[name].why == metric.why
        assert found[name].value == metric.value
        if metric.low is not None:
            assert (found[name].low, found[name].high) == pytest.approx((metric.low, metric.high))


def test_two_tasks_have_no_interval_however_many_contexts_they_have() -> None:
    found = found_in(contexts_of(np.random.default_rng(0), 2))
    assert found["gap_per_token"].value is not None
    assert (found["gap_per_token"].low, found["gap_per_token"].high) == (None, None)
    assert found["gap_per_token"].why == "no interval: an interval needs at least 3 tasks, found 2"
    assert found["mi_ceiling"].why == ""


def test_closed_thoughts_keep_their_tasks() -> None:
    scores = contexts_of(np.random.default_rng(0), 4)
    assert select_rows(scores, [row >= 30 for row in range(CONTEXTS)]).tasks_M == ["task-2", "task-3"]
