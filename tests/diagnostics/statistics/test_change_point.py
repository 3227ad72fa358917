"""The sequential test: hand-computed statistics, what it does not see, and how often it is wrong."""

import math
from dataclasses import replace

import numpy as np
import pytest

from heedful.diagnostics.statistics.change_point import Design, Point, _correlation, largest_shift
from heedful.types import Metric

DOWN = Design("down", least=0.1, relative=False, threshold=5.0, baseline=3, confirm=2, correlation=0.0)
UP = replace(DOWN, direction="up", least=0.25, relative=True)


def readings(values, error=0.1):
    return [Point(4 * place, value, None if error is None else error**2) for place, value in enumerate(values)]


def test_a_reading_takes_its_variance_from_the_wider_side_of_its_interval():
    found = Point.of(3, Metric("success/rate", 0.9, 128, 0.704004, 1.0))
    assert found is not None
    assert (found.step, found.value, found.n) == (3, 0.9, 128)
    assert math.sqrt(found.variance) == pytest.approx(0.1, rel=1e-5)
    assert Point.of(3, Metric("a", 2.0)).variance is None
    assert Point.of(3, Metric("a", None, why="none")) is None
    assert Point.of(3, Metric("a", "diverse")) is None
    assert Point.of(3, Metric("a", math.nan)) is None


def test_a_fall_is_measured_in_standard_errors_of_the_two_means():
    # Before: mean .8 of 3; after: mean .5 of 2; standard error .1 sqrt(1/3 + 1/2). Scatter before is nil.
    shift = largest_shift(readings([0.8, 0.8, 0.8, 0.5, 0.5]), DOWN)
    assert shift is not None
    assert shift.z == pytest.approx(0.3 / (0.1 * math.sqrt(1 / 3 + 1 / 2)))
    assert (shift.before, shift.first, shift.last, shift.since) == (pytest.approx(0.8), 0, 8, 12)
    half = 1.959964 * 0.1 / math.sqrt(2)
    assert (shift.low, shift.after, shift.high) == (
        pytest.approx(0.5 - half),
        pytest.approx(0.5),
        pytest.approx(0.5 + half),
    )


def test_correlated_readings_weigh_less():
    # AR(1) with c = .5: the mean of 2 has variance .75, of 3 (3 + 2 (2 * .5 + .25)) / 9 = .6111.
    found = largest_shift(readings([0.8, 0.8, 0.8, 0.5, 0.5]), replace(DOWN, correlation=0.5))
    assert found.z == pytest.approx(0.3 / (0.1 * math.sqrt(0.75 + 5.5 / 9)))


def test_noisy_readings_after_a_change_are_not_made_precise_by_quiet_ones_before_it():
    # Ten readings with errors of .01, then two with errors of .1: the mean of the two has an error of .1 / sqrt(2).
    quiet, noisy = readings([0.2] * 10, error=0.01), readings([0.5, 0.5], error=0.1)
    found = largest_shift([*quiet, *(replace(point, step=40 + point.step) for point in noisy)], UP)
    # Before, no error is trusted below a quarter of what matters, .25 * .25 * .2 = .0125.
    assert found.z == pytest.approx(0.3 / math.sqrt(0.0125**2 / 10 + 0.1**2 / 2))


def test_scatter_before_the_change_counts_where_it_is_larger():
    values = [0.9, 0.7, 0.9, 0.4, 0.4]
    found = largest_shift(readings(values, error=0.01), DOWN)
    scatter = (0.2**2 + 0.2**2) / 4
    assert found.z == pytest.approx((2.5 / 3 - 0.4) / math.sqrt(scatter * (1 / 3 + 1 / 2)))


def test_without_intervals_few_readings_are_worth_little():
    known = largest_shift(readings([0.9, 0.8, 0.9, 0.8, 0.2, 0.2], error=0.05), DOWN)
    unknown = largest_shift(readings([0.9, 0.8, 0.9, 0.8, 0.2, 0.2], error=None), DOWN)
    assert known.z > 8
    assert unknown.z < 3


def test_no_reading_is_trusted_beyond_a_quarter_of_what_matters():
    found = largest_shift(readings([0.8, 0.8, 0.8, 0.7, 0.7], error=1e-9), replace(DOWN, least=0.0999))
    assert found.z == pytest.approx(0.1 / (0.0999 / 4 * math.sqrt(1 / 3 + 1 / 2)))


@pytest.mark.parametrize(
    "values",
    [
        [0.8, 0.8, 0.5, 0.5],  # too few before
        [0.8, 0.8, 0.8, 0.5],  # too few in all
        [0.5, 0.5, 0.5, 0.8, 0.8],  # the other way
        [0.8, 0.8, 0.8, 0.75, 0.75],  # less than matters
        [0.8, 0.8, 0.8, 0.2, 0.2, 0.8],  # a burst that is over
    ],
)
def test_what_is_no_change(values):
    assert largest_shift(readings(values), DOWN) is None


def test_a_fall_is_seen_from_the_best_that_was_held_not_from_the_start():
    values = [0.4, 0.4, 0.4, 0.4, 0.9, 0.9, 0.9, 0.6, 0.6]
    found = largest_shift(readings(values), DOWN)
    assert (found.before, found.first, found.since) == (pytest.approx(0.9), 16, 28)


def test_a_rise_by_a_part_of_the_level():
    assert largest_shift(readings([2.0, 2.0, 2.0, 2.4, 2.4]), UP) is None
    found = largest_shift(readings([2.0, 2.0, 2.0, 2.6, 2.6]), UP)
    assert found.z == pytest.approx(0.6 / (0.125 * math.sqrt(1 / 3 + 1 / 2)))


def test_a_part_of_next_to_nothing_does_not_matter_below_the_floor():
    floored, doubled = replace(UP, floor=0.05), readings([0.02, 0.02, 0.02, 0.05, 0.05], error=0.001)
    assert largest_shift(doubled, UP).z > 5
    assert largest_shift(doubled, floored) is None
    found = largest_shift(readings([0.02, 0.02, 0.02, 0.09, 0.09], error=0.001), floored)
    assert found.z == pytest.approx(0.07 / (0.05 / 4 * math.sqrt(1 / 3 + 1 / 2)))
    assert not floored.matters(0.02, 0.069)
    assert floored.matters(1.0, 1.26)
    assert not floored.matters(1.0, 1.24)


def test_the_statistic_knows_neither_unit_nor_level():
    rng = np.random.default_rng(1)
    values = rng.normal(0.7, 0.1, 20)
    one = largest_shift(readings(values), replace(DOWN, least=1e-6))
    other = largest_shift(readings(50 + 1000 * values, error=100.0), replace(DOWN, least=1e-3))
    assert other.z == pytest.approx(one.z)


def test_a_change_without_any_noise_has_a_finite_statistic():
    assert largest_shift(readings([0.0, 0.0, 0.0, 1.0, 1.0], error=0.0), UP).z == 1000.0


def highest(rng, count, design, error, correlation):
    """The largest statistic of one series without drift."""
    noise = rng.standard_normal(count)
    for place in range(1, count):
        noise[place] = correlation * noise[place - 1] + math.sqrt(1 - correlation**2) * noise[place]
    made = readings(noise, error)
    shifts = [largest_shift(made[: end + 1], design) for end in range(count)]
    return max((shift.z for shift in shifts if shift is not None), default=0.0)


@pytest.mark.parametrize("error", [1.0, None], ids=["own intervals", "scatter alone"])
@pytest.mark.parametrize("correlation", [0.0, 0.25])
def test_series_without_drift_rarely_get_far(error, correlation):
    design = Design("down", 1e-9, False, 5.0, 5, 2, 0.25)
    rng = np.random.default_rng(5)
    found = [highest(rng, 40, design, error, correlation) for _ in range(25)]
    assert max(found) < 5
    assert np.median(found) > 1.0, "it does look"


@pytest.mark.proof
@pytest.mark.parametrize("correlation", [0.0, 0.25])
def test_fewer_than_2_in_1000_series_without_drift_reach_the_threshold(correlation, record_property):
    design = Design("down", 1e-9, False, 5.0, 5, 2, 0.25)
    rng = np.random.default_rng(6)
    found = [highest(rng, 100, design, 1.0, correlation) for _ in range(2000)]
    record_property("cases", len(found))
    assert sum(z >= design.threshold for z in found) < 4


def drops_found(rng, design, correlation, drop, series, count):
    """Success rates with exact intervals that fall by `drop` halfway: early alarms, and the delays of all alarms."""
    early, delays = 0, []
    for _ in range(series):
        noise = rng.standard_normal(count)
        for place in range(1, count):
            noise[place] = correlation * noise[place - 1] + math.sqrt(1 - correlation**2) * noise[place]
        values = 0.5 + 0.06 * noise - drop * (np.arange(count) >= count // 2)
        points = readings(values, 0.06)
        for end in range(count):
            shift = largest_shift(points[max(0, end - 63) : end + 1], design)
            if shift is not None and shift.z >= design.threshold:
                early += end < count // 2
                delays.append(end - count // 2)
                break
    return early, delays


OF_SUCCESS = Design("down", 0.05, False, 5.0, 5, 2, 0.25, estimated=True)
"""That of the alarm success_drop."""


def test_a_correlation_is_read_around_a_change_of_level_and_not_from_it():
    steady = [0.1, -0.1] * 4
    levels = [1.0 + each for each in steady] + steady
    # r = -14/16 within the two levels, plus (2 - 4 * 14/16) / 16 of bias; negative counts as 0.
    assert _correlation(np.array(levels), OF_SUCCESS) == 0.0
    slow = [0.1, 0.1, 0.1, 0.1, -0.1, -0.1, -0.1, -0.1]
    # Neighbours agree 6 times in 7 within each level: r = 2 * (6 - 1) / 16 = .625, plus (2 + 2.5) / 16.
    assert _correlation(np.array([9.0 + each for each in slow] + slow), OF_SUCCESS) == pytest.approx(0.625 + 4.5 / 16)
    assert _correlation(np.full(10, 0.3), OF_SUCCESS) == 0.0


def test_an_estimated_correlation_only_widens():
    values = readings([0.9, 0.7, 0.9, 0.7, 0.9, 0.7, 0.2, 0.2])
    assert largest_shift(values, OF_SUCCESS).z == largest_shift(values, replace(OF_SUCCESS, estimated=False)).z
    slow = readings([0.9, 0.9, 0.9, 0.7, 0.7, 0.7, 0.2, 0.2])
    assert largest_shift(slow, OF_SUCCESS).z < largest_shift(slow, replace(OF_SUCCESS, estimated=False)).z


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.7, 0.9])
def test_correlated_success_raises_no_false_alarm_and_a_drop_is_still_found(correlation):
    early, delays = drops_found(np.random.default_rng(8), OF_SUCCESS, correlation, 0.0, 12, 60)
    assert len(delays) <= 1
    early, delays = drops_found(np.random.default_rng(9), OF_SUCCESS, correlation, 0.4, 8, 60)
    assert early == 0
    assert len(delays) >= 7, "power"


@pytest.mark.proof
@pytest.mark.parametrize(("correlation", "power"), [(0.0, 0.9), (0.5, 0.9), (0.7, 0.8), (0.9, 0.4)])
def test_at_most_2_percent_of_correlated_series_raise_success_drop(correlation, power, record_property):
    series = 400
    record_property("cases", series)
    _, wrong = drops_found(np.random.default_rng(10), OF_SUCCESS, correlation, 0.0, series, 100)
    assert len(wrong) <= 0.02 * series
    early, found = drops_found(np.random.default_rng(11), OF_SUCCESS, correlation, 0.2, 100, 100)
    record_property("drops_of_20_points_found", len(found) - early)
    assert len(found) - early >= 100 * power
