"""Pooling seeds, with numbers worked out by hand: t(1) = 12.7062 and t(2) = 4.30265 at 95%."""

import pytest

from heedful.studies.paired import over_tasks, task_gains, task_rates
from heedful.types import Ending, Group, Task, Trajectory


def group(name: str, outcomes: list[float | None]) -> Group:
    task = Task(name, seed=0, split="val")
    return Group(
        task,
        tuple(
            Trajectory(task, member, (), Ending.ERROR if outcome is None else Ending.FAILED, outcome)
            for member, outcome in enumerate(outcomes)
        ),
    )


def test_a_task_is_rated_by_its_scored_episodes_and_partial_credit_is_no_success() -> None:
    groups = [group("a", [1.0, 0.0, 0.5, 1.0]), group("b", [None, 1.0]), group("c", [None])]
    assert task_rates(groups) == {"a": 0.5, "b": 1.0}


def test_gains_are_paired_and_a_task_scored_once_has_none() -> None:
    assert task_gains({"a": 0.25, "b": 1.0}, {"a": 0.75, "c": 1.0}) == {"a": 0.5}


def test_the_interval_over_tasks_is_students_over_their_means_of_all_seeds() -> None:
    pooled = over_tasks("gain", [{"a": 0.6, "b": 0.1, "c": 0.0}, {"b": 0.1, "a": 0.2, "c": 0.2}])
    # Tasks 0.4, 0.1, 0.1: mean 0.2, standard deviation sqrt(0.03), standard error 0.1.
    assert pooled.value == pytest.approx(0.2)
    assert pooled.n == 3
    assert pooled.low == pytest.approx(0.2 - 0.430265, abs=1e-5)
    assert pooled.high == pytest.approx(0.2 + 0.430265, abs=1e-5)


def test_tasks_that_one_seed_lacks_are_not_pooled() -> None:
    pooled = over_tasks("gain", [{"a": 1.0, "b": 0.0}, {"a": 0.5}])
    assert pooled.value == pytest.approx(0.75)
    assert (pooled.n, pooled.low, pooled.why) == (1, None, "a single task has no interval")


def test_one_seed_has_an_interval_over_its_tasks() -> None:
    pooled = over_tasks("gain", [{"a": 0.5, "b": 0.1}])
    assert pooled.low == pytest.approx(0.3 - 12.7062 * 0.2, abs=1e-4)


def test_gains_that_agree_exactly_give_no_interval_of_no_width() -> None:
    pooled = over_tasks("gain", [{"a": 0.2, "b": 0.2}, {"a": 0.4, "b": 0.4}])
    assert pooled.value == pytest.approx(0.3)
    assert (pooled.low, pooled.high) == (None, None)
    assert "all gains are equal" in pooled.why


def test_seeds_without_an_evaluation_are_left_out() -> None:
    assert over_tasks("gain", [{"a": 0.5, "b": 0.1}, {}]).n == 2
    nothing = over_tasks("gain", [{}, {}])
    assert (nothing.value, nothing.why) == (None, "no task was evaluated twice, or its rollouts are not kept")


def test_seeds_that_share_no_task_have_no_mean_over_tasks() -> None:
    pooled = over_tasks("gain", [{"a": 0.5}, {"b": 0.1}])
    assert (pooled.value, pooled.why) == (None, "the seeds share no task")
