"""Areas under ROC curves: by hand on a few readings, against brute force and simulation on many."""

import itertools
import math

import numpy as np
import pytest

from research.detector.roc import Sample, area, roc_curve


def test_the_area_counts_pairs_and_halves_ties() -> None:
    # Pairs (collapsed, healthy): 3>1 3>2 3=3 | 2>1 2=2 2<3: 3 wins, 2 ties of 6.
    found = area(Sample((3.0, 2.0)), Sample((1.0, 2.0, 3.0)), "higher")
    assert found.value == pytest.approx((3 + 2 * 0.5) / 6)
    assert (found.collapsed, found.healthy, found.declared) == (2, 3, True)


def test_a_declared_direction_is_kept_even_where_it_is_wrong() -> None:
    low, high = Sample((0.0, 1.0)), Sample((2.0, 3.0))
    assert area(low, high, "higher").value == 0.0
    assert area(low, high, "lower").value == 1.0
    chosen = area(low, high)
    assert (chosen.value, chosen.direction, chosen.declared) == (1.0, "lower", False)


def test_a_metric_that_never_moves_tells_nothing() -> None:
    found = area(Sample((1.0,) * 5), Sample((1.0,) * 4))
    assert found.value == 0.5
    assert found.interval is None


def test_without_overlap_the_limit_is_that_of_independent_pairs() -> None:
    found = area(Sample(tuple(np.arange(50) + 100.0)), Sample(tuple(np.arange(60) * 1.0)), "higher")
    assert found.value == 1.0
    assert found.interval == pytest.approx((0.025 ** (1 / 50), 1.0))
    assert found.why == "no overlap: exact for 50 runs"


def test_without_overlap_runs_count_and_not_their_values() -> None:
    runs = tuple(f"r{run}" for run in range(3) for _ in range(50))
    found = area(Sample(tuple(np.arange(150) + 1000.0), runs), Sample(tuple(np.arange(150) * 1.0), runs), "higher")
    assert found.interval == pytest.approx((0.025 ** (1 / 3), 1.0))
    assert (found.collapsed, found.collapsed_runs, found.healthy_runs) == (150, 3, 3)


def test_a_single_run_on_one_side_has_no_interval() -> None:
    one, three = ("r",) * 3, ("a", "b", "c")
    found = area(Sample((4.0, 5.0, 6.0), one), Sample((1.0, 2.0, 4.5), three), "higher")
    assert (found.interval, found.why) == (None, "a single run on one side")


def test_with_one_value_per_run_the_interval_is_delongs_on_the_log_odds_scale() -> None:
    # Student's t with 2 degrees of freedom.
    # 0.5, 1.5 and 3.5 lie above 0, 1 and 3 of the healthy; 1, 2 and 3 lie below 2, 1 and 1 of the collapsed.
    found = area(Sample((0.5, 1.5, 3.5)), Sample((1.0, 2.0, 3.0)), "higher")
    s10 = sum((v - 4 / 9) ** 2 for v in (0, 1 / 3, 1)) / 2
    s01 = sum((v - 4 / 9) ** 2 for v in (2 / 3, 1 / 3, 1 / 3)) / 2
    half = 4.302653 * math.sqrt(s10 / 3 + s01 / 3) / (4 / 9 * 5 / 9)
    odds = math.log(4 / 5)
    assert found.value == pytest.approx(4 / 9)
    assert found.interval == pytest.approx([1 / (1 + math.exp(-odds + side * half)) for side in (1, -1)], abs=1e-6)


def test_readings_of_one_run_do_not_count_as_independent() -> None:
    rng = np.random.default_rng(1)
    levels_x, levels_y = rng.normal(1.0, 1.0, 6), rng.normal(0.0, 1.0, 6)
    x = tuple(float(level + noise) for level in levels_x for noise in rng.normal(0, 0.1, 20))
    y = tuple(float(level + noise) for level in levels_y for noise in rng.normal(0, 0.1, 20))
    names = tuple(f"r{run}" for run in range(6) for _ in range(20))
    clustered = area(Sample(x, names), Sample(y, tuple(f"h{name}" for name in names)), "higher")
    naive = area(Sample(x), Sample(y), "higher")
    assert clustered.value == naive.value
    assert clustered.interval is not None
    assert naive.interval is not None
    widths = [found.interval.high - found.interval.low for found in (clustered, naive)]
    assert widths[0] > 2.5 * widths[1]


def coverage(runs: int, distance: float, within: float, studies: int, seed: int) -> float:
    """Share of intervals that hold the true area: runs have levels of their own, and 10 values each around them."""
    rng = np.random.default_rng(seed)
    true = 0.5 * (1 + math.erf(distance / math.sqrt(2 * (1 + within**2)) / math.sqrt(2)))
    names = tuple(f"{run}" for run in range(runs) for _ in range(10))
    held = 0
    for _ in range(studies):
        levels = distance + rng.normal(size=runs), rng.normal(size=runs)
        x, y = ((own[:, None] + within * rng.normal(size=(runs, 10))).ravel() for own in levels)
        sides = Sample(tuple(x), tuple(f"x{n}" for n in names)), Sample(tuple(y), tuple(f"y{n}" for n in names))
        found = area(*sides, "higher").interval
        held += found is not None and found.low <= true <= found.high
    return held / studies


@pytest.mark.parametrize(("runs", "within"), [(2, 0.1), (2, 1.0), (6, 1.0)])
def test_few_runs_of_a_noise_metric_are_not_told_apart(runs: int, within: float) -> None:
    assert coverage(runs, 0.0, within, 100, 3) >= 0.95


@pytest.mark.proof
@pytest.mark.parametrize("runs", [2, 3, 4, 6, 12])
@pytest.mark.parametrize("within", [0.1, 1.0])
@pytest.mark.parametrize("distance", [0.0, 1.0, 2.0, 3.5])
def test_intervals_by_run_hold_the_true_area(runs: int, within: float, distance: float, record_property) -> None:
    studies = 500
    record_property("cases", studies)
    assert coverage(runs, distance, within, studies, 4) >= 0.9 - 2 * math.sqrt(0.9 * 0.1 / studies)


def test_a_roc_curve_runs_from_corner_to_corner_and_encloses_the_area() -> None:
    collapsed, healthy = [3.0, 2.0, 2.0], [1.0, 2.0, 0.0, 3.0]
    points = roc_curve(collapsed, healthy, "higher")
    assert points[0] == (0.0, 0.0)
    assert points[-1] == (1.0, 1.0)
    trapezoids = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))
    assert trapezoids == pytest.approx(area(Sample(tuple(collapsed)), Sample(tuple(healthy)), "higher").value)
