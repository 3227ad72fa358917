"""Intervals against textbook numbers and against exact coverage."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from heedful.diagnostics.statistics.intervals import (
    Interval,
    cluster_interval,
    cluster_rate_interval,
    effective_clusters,
    jackknife_interval,
    mean_interval,
    rate_interval,
    ratio_interval,
    wilson,
)


def test_wilson_agrees_with_published_numbers():
    # Newcombe 1998, table I: 81 of 263 and 15 of 148.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(29, 29) == pytest.approx((0.8830, 1.0), abs=5e-5)


def test_wilson_has_width_and_exact_ends_where_all_trials_agree():
    assert wilson(0, 7).low == 0.0
    assert wilson(7, 7).high == 1.0
    assert wilson(0, 7).high > 0.2


def test_wilson_covers_binomial_rates_about_95_times_in_100():
    coverage = []
    for rate in np.linspace(0.05, 0.95, 19):
        successes = np.arange(65)
        covered = [low <= rate <= high for low, high in (wilson(int(count), 64) for count in successes)]
        coverage.append(float(binom.pmf(successes, 64, rate) @ np.array(covered)))
    assert np.mean(coverage) == pytest.approx(0.95, abs=0.01)
    assert min(coverage) > 0.9


def test_mean_interval_is_students():
    # Mean 2, sample std 1, t(2) = 4.302653: half width 4.302653 / sqrt 3.
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-5)
    assert mean_interval([1.0]) is None
    assert mean_interval([]) is None


def test_equal_clusters_give_the_interval_of_the_cluster_means():
    assert cluster_interval([4.0, 2.0, 7.0], [4, 4, 4]) == pytest.approx(mean_interval([1.0, 0.5, 1.75]))


def test_clusters_without_values_do_not_count():
    assert cluster_interval([1.0, 0.0, 2.0], [2, 0, 2]) == cluster_interval([1.0, 2.0], [2, 2])
    assert cluster_interval([1.0, 0.0], [2, 0]) is None


def test_unequal_clusters_jackknife_the_pooled_mean():
    # Values 1 | 0 0 | 1 1 1: pooled 4/6; without each cluster 3/5, 4/4, 1/3.
    deleted = np.array([3 / 5, 1.0, 1 / 3])
    error = math.sqrt(2 / 3 * float(((deleted - deleted.mean()) ** 2).sum()))
    expected = (4 / 6 - 4.302653 * error, 4 / 6 + 4.302653 * error)
    assert cluster_interval([1.0, 0.0, 3.0], [1, 2, 3]) == pytest.approx(expected, abs=1e-5)
    assert jackknife_interval(4 / 6, deleted) == pytest.approx(expected, abs=1e-5)


def test_an_interval_is_cut_to_the_range_without_turning_over():
    assert Interval(-0.2, 1.3).cut(0.0, 1.0) == (0.0, 1.0)
    assert Interval(1.1, 1.3).cut(0.0, 1.0) == (1.0, 1.0)


def test_an_interval_of_a_ratio_is_the_published_one_for_means():
    # Means 2 and 4 of three pairs: variances of the means 1/3 and 1/3, no covariance. t = 4.3027 at two degrees.
    upper, lower = np.array([1.0, 2.0, 3.0]), np.array([11 / 3, 14 / 3, 11 / 3])
    found = ratio_interval(2.0, 4.0, (6 - upper) / 2, (12 - lower) / 2)
    t2 = 4.302653**2
    of_upper, of_lower = t2 / 3, t2 / 9
    square, product = 16 - of_lower, 8.0
    half = math.sqrt(product**2 - square * (4 - of_upper))
    assert found == pytest.approx(((product - half) / square, (product + half) / square), rel=1e-5)


def test_there_is_no_interval_of_a_ratio_whose_divisor_may_be_zero():
    near_zero = np.array([-0.5, 0.5, 1.5])
    assert ratio_interval(1.0, 0.5, np.array([0.9, 1.0, 1.1]), near_zero) is None
    assert ratio_interval(1.0, -5.0, np.array([0.9, 1.0, 1.1]), np.array([-5.1, -5.0, -4.9])) is None


def test_a_rate_of_correlated_trials_is_wilsons_for_the_trials_that_give_the_same_error():
    # Two of four tasks solve all of 8 trials: the squared error of the mean of 1 1 0 0 is 1/12, as of 3 trials.
    t2 = 3.182446**2
    half = math.sqrt(t2 * (0.25 / 3 + t2 / (4 * 9))) / (1 + t2 / 3)
    assert cluster_rate_interval([8.0, 8.0, 0.0, 0.0], [8] * 4) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


def test_a_rate_that_all_clusters_agree_on_has_a_width():
    assert cluster_rate_interval([4.0] * 5, [8] * 5) == rate_interval(0.5, np.full(5, 0.5), 40)
    low, high = cluster_rate_interval([4.0] * 5, [8] * 5)
    assert high - low > 0.3
    assert cluster_rate_interval([8.0] * 5, [8] * 5) == pytest.approx((5 / (5 + 2.776445**2), 1.0), abs=1e-6)
    assert cluster_rate_interval([3.0], [8]) is None


def test_a_rare_success_is_covered_though_few_tasks_ever_solve():
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        sums = rng.binomial(8, rng.beta(0.1, 4.9, 32)).astype(float).tolist()
        low, high = cluster_rate_interval(sums, [8] * 32)
        held += low <= 0.02 <= high
    assert held / 400 > 0.92, "the jackknife's interval holds the truth in 82%"


def test_effective_clusters_by_hand() -> None:
    # One of four differs by 4: deviations 3, -1, -1, -1, so (9 + 3)^2 / (81 + 3).
    assert effective_clusters([4.0, 0.0, 0.0, 0.0]) == pytest.approx(144 / 84, abs=0.005)
    assert effective_clusters([1.0, 0.0] * 8) == 16.0
    assert (
        effective_clusters([0.1, 0.2, 0.6]) == effective_clusters([1e9, 2e9, 6e9]) == effective_clusters([-1, -2, -6])
    )
    assert effective_clusters([2.0] * 5) == effective_clusters([1.0]) == effective_clusters([]) == 0.0


def test_three_clusters_count_as_two_at_most_and_few_among_many_as_few() -> None:
    assert effective_clusters([0.0, 0.5, 0.7]) == effective_clusters([0.0, 0.0, 1.0]) == 2.0
    for few in (1, 2, 3):
        assert effective_clusters([1.0] * few + [0.0] * 997) == pytest.approx(few, rel=0.01)
