"""The trend of a group's gradient over the variance of its rewards: known slopes, and none where there is none."""

import numpy as np
import pytest

from heedful.diagnostics.gradient.metrics import PARTS
from heedful.diagnostics.gradient.scope import GradientNoise, Side
from heedful.diagnostics.gradient.trend import trend_metrics
from heedful.types import Metric


def measured(norms: dict[str, np.ndarray], variances: tuple[np.ndarray, np.ndarray]) -> GradientNoise:
    """Halves with these norms of single groups on both sides, and a variance on each."""
    count = len(variances[0])
    grams = {(part, part): np.diag(norms.get(part, np.ones(count)) ** 2) for part in PARTS}
    rest = np.zeros(count)
    first, second = (Side(grams, {}, rest, variance, rest, rest) for variance in variances)
    return GradientNoise(first, (first, second))


def trends(measurement: GradientNoise) -> dict[str, Metric]:
    return {metric.name.removeprefix("gradient/all/"): metric for metric in trend_metrics(measurement, PARTS)}


def test_a_norm_that_doubles_over_the_ranks_has_the_trend_of_its_slope_over_its_mean() -> None:
    variance = np.linspace(0, 0.3, 11)
    found = trends(measured({"task_undivided": np.linspace(1, 2, 11)}, (variance, variance)))
    # Both halves are ranked together: 22 values in 11 pairs, whose ranks end at .5 / 21 and 20.5 / 21.
    assert found["task_undivided_trend"].value == pytest.approx(1 / 1.5 * 21 / 20)
    assert found["kl_trend"].value == pytest.approx(0)
    assert found["task_undivided_trend_over_kl"].value == pytest.approx(1 / 1.5 * 21 / 20)


def test_the_interval_tells_a_climb_from_a_flat_part_as_often_as_it_says() -> None:
    rng, count = np.random.default_rng(0), 40
    held, seen = 0, 0
    for _ in range(60):
        truth = rng.random(count)
        halves = truth + rng.normal(0, 0.2, count), truth + rng.normal(0, 0.2, count)
        noise = rng.lognormal(0, 0.3, (2, count))
        found = trends(measured({"task_undivided": (0.5 + truth) * noise[0], "kl": noise[1]}, halves))
        flat, over = found["kl_trend"], found["task_undivided_trend_over_kl"]
        assert flat.low is not None
        assert flat.high is not None
        held += flat.low <= 0 <= flat.high
        seen += (over.low or 0) > 0
    assert held >= 53
    assert seen >= 50


def test_a_group_is_ranked_by_the_half_that_is_not_measured() -> None:
    # The norm follows the variance of the measured half alone, which is luck: ranked by the other half it is flat.
    rng = np.random.default_rng(1)
    one, other = rng.random(400), rng.random(400)
    grams = [{(part, part): np.diag(luck**2) for part in PARTS} for luck in (one, other)]
    rest = np.zeros(400)
    sides = Side(grams[0], {}, rest, one, rest, rest), Side(grams[1], {}, rest, other, rest, rest)
    found = trends(GradientNoise(sides[0], sides))
    assert found["task_trend"].value == pytest.approx(0, abs=0.15)


def test_without_enough_groups_ranks_or_gradient_there_is_no_trend() -> None:
    few, many = np.linspace(0, 1, 7), np.linspace(0, 1, 12)
    assert trends(measured({}, (few, few)))["task_trend"].value is None
    assert trends(measured({}, (np.ones(12), np.ones(12))))["task_trend"].value is None
    silent = trends(measured({"kl": np.zeros(12)}, (many, many)))
    assert silent["kl_trend"].value is None
    assert silent["task_undivided_trend_over_kl"].value is None
    assert silent["task_undivided_trend_over_entropy"].value == pytest.approx(0)
