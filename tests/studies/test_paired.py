"""Exact limits, paired differences, the sign-flip test and seeds over tasks, against numbers worked out by hand.

t(1) = 12.7062 and t(2) = 4.30265 at 95%.
"""

import math

import pytest

from heedful.run.evaluation.held_out import over_tasks, task_gains, task_rates
from heedful.studies.paired import (
    Count,
    clopper_pearson,
    mean_over,
    paired_difference,
    sign_flip_p,
)
from heedful.types import Ending, Group, Task, Trajectory


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (9, 10, 0.55498, 0.99747),  # the table value of 9 in 10
        (0, 10, 0.0, 1 - 0.025 ** (1 / 10)),  # all n miss with chance (1 - p)^n
        (10, 10, 0.025 ** (1 / 10), 1.0),
        (0, 200, 0.0, 1 - 0.025 ** (1 / 200)),
    ],
)
def test_the_limits_of_a_count_are_exact(hits: int, of: int, low: float, high: float) -> None:
    assert clopper_pearson(hits, of) == pytest.approx((low, high), abs=1e-5)


def test_each_limit_leaves_its_tail_of_the_binomial() -> None:
    low, high = clopper_pearson(3, 12)
    upper_tail = sum(math.comb(12, k) * low**k * (1 - low) ** (12 - k) for k in range(3, 13))
    lower_tail = sum(math.comb(12, k) * high**k * (1 - high) ** (12 - k) for k in range(4))
    assert (upper_tail, lower_tail) == pytest.approx((0.025, 0.025))


def test_nothing_to_count_has_no_rate() -> None:
    assert Count(0, 0).metric.value is None
    assert str(Count(0, 0)) == "0 of 0"
    assert str(Count(9, 10)) == "9 of 10 [0.555, 0.997]"


def test_the_sign_flip_test_counts_patterns() -> None:
    # Of 8 patterns of +-1, +-2, +-3 only +++ and --- reach a sum of 6.
    assert sign_flip_p([1.0, 2.0, 3.0]) == 2 / 8
    # The sum is 4: reached by 3 + 2 - 1 and passed by 3 + 2 + 1, with their mirrors 4 of 8.
    assert sign_flip_p([-1.0, 2.0, 3.0]) == 4 / 8
    assert sign_flip_p([0.1] * 5) == 2 / 32
    assert sign_flip_p([0.0, 0.0]) == 1.0


def test_differences_that_tie_up_to_rounding_count_as_ties() -> None:
    # 0.1 + 0.2 - 0.3 is not 0 in floats, but each pattern's mirror has the same size.
    assert sign_flip_p([0.1, 0.2, -0.3]) == 1.0


def test_no_pair_and_too_many_pairs_have_no_exact_p() -> None:
    assert sign_flip_p([]) is None
    assert sign_flip_p([1.0] * 21) is None


def test_a_paired_difference_is_that_of_the_shared_seeds() -> None:
    found = paired_difference("success", {0: 0.5, 1: 0.7, 2: 0.9, 3: 1.0}, {0: 0.4, 1: 0.5, 2: 0.6, 7: 0.0})
    assert found.by_seed == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3})
    # Mean 0.2, sample standard deviation 0.1, t(2) = 4.3027: half width 4.3027 * 0.1 / sqrt(3).
    assert found.mean.value == pytest.approx(0.2)
    assert (found.mean.low, found.mean.high) == pytest.approx((0.2 - 0.24841, 0.2 + 0.24841), abs=1e-4)
    assert found.p_value == 2 / 8
    assert not found.clear
    assert "2 missing" in found.mean.why


def test_without_shared_seeds_there_is_no_difference_but_a_reason() -> None:
    found = paired_difference("success", {0: 1.0}, {1: 0.0})
    assert found.mean.value is None
    assert found.mean.why == "no seed has a value in both arms"


def test_a_mean_says_what_is_missing_and_why() -> None:
    metric = mean_over("x", [1.0, 2.0, 3.0], ["not recorded", "not recorded"])
    assert (metric.value, metric.n, metric.why) == (2.0, 3, "2 missing: not recorded")
    assert mean_over("x", [], []).why == "no run is done"
    assert mean_over("x", [1.0]).why == "a single seed has no interval"
    # Seeds that agree exactly are no certainty.
    assert mean_over("x", [1.0, 1.0]).low is None


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
    pooled = over_tasks("gain", [{"a": 0.35, "b": 0.25}])
    assert pooled.low == pytest.approx(0.3 - 12.7062 * 0.05, abs=1e-4)


def test_an_interval_over_tasks_ends_where_gains_end() -> None:
    pooled = over_tasks("gain", [{"a": 0.5, "b": 0.1}])  # Student's: 0.3 less and more 2.54
    assert (pooled.low, pooled.high) == (-1.0, 1.0)


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
