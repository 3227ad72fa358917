"""Simulated runs without drift: their levels, their noise, and how it carries over."""

import numpy as np
import pytest

from heedful.types import Metric
from research.detector.drift_free import drift_free, levels_of


def real_run() -> list[tuple[int, dict[str, Metric]]]:
    """50 steps: a share with intervals of +-0.0392 (a standard error of 0.02), a drifting number without, a label."""
    return [
        (
            step,
            {
                "success/rate": Metric("success/rate", 0.5, 100, 0.5 - 0.0392, 0.5 + 0.0392),
                "policy/gradient_norm": Metric("policy/gradient_norm", 2.0 + 0.1 * step),
                "regime/first_turn": Metric("regime/first_turn", "diverse"),
                **({"text/judge_accuracy": Metric("text/judge_accuracy", None, why="off")} if step else {}),
            },
        )
        for step in range(50)
    ]


def test_levels_and_errors_are_those_of_the_readings() -> None:
    levels = {level.name: level for level in levels_of(real_run(), first_step=10)}
    assert set(levels) == {"success/rate", "policy/gradient_norm"}
    share = levels["success/rate"]
    assert (share.value, share.error, share.bounded, share.n) == (0.5, pytest.approx(0.02, abs=1e-5), True, 100)
    assert share.steps == tuple(range(10, 50))
    # Neighbours differ by 0.1 everywhere: what a drift of the real run hides is no larger.
    assert levels["policy/gradient_norm"].error == pytest.approx(0.1 / 0.954)
    assert not levels["policy/gradient_norm"].bounded


def values(name: str, correlation: float, runs: int = 200) -> np.ndarray:
    levels = levels_of(real_run())
    return np.array(
        [[found[name].value for _, found in drift_free(levels, seed, correlation)] for seed in range(runs)], dtype=float
    )


def test_the_noise_is_stationary_and_carries_over_as_asked() -> None:
    noise = values("success/rate", correlation=0.6) - 0.5
    assert abs(noise.mean()) < 0.02 * 5 / np.sqrt(200 * 50 / 4)
    assert noise.std() == pytest.approx(0.02, rel=0.05)
    # From the first reading on, not only once it has built up.
    assert noise[:, 0].std() == pytest.approx(0.02, rel=0.2)
    assert np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1] == pytest.approx(0.6, abs=0.05)


def test_nothing_drifts() -> None:
    # The real run's gradient norm rises fivefold; the simulated ones do not move on average.
    found = values("policy/gradient_norm", correlation=0.5)
    assert found[:, :10].mean() == pytest.approx(found[:, -10:].mean(), abs=0.03)


def test_simulated_readings_have_the_intervals_and_the_range_of_real_ones() -> None:
    run = [(step, {"success/rate": Metric("success/rate", 0.99, 10, 0.89, 1.0)}) for step in range(40)]
    simulated = [found["success/rate"] for _, found in drift_free(levels_of(run), seed=1)]
    assert all(0 <= metric.value <= 1 and metric.high <= 1 for metric in simulated)
    assert all(metric.low <= metric.value <= metric.high and metric.n == 10 for metric in simulated)


def test_equal_seeds_give_equal_series_and_others_do_not() -> None:
    levels = levels_of(real_run())
    assert drift_free(levels, 3) == drift_free(levels, 3)
    assert drift_free(levels, 3) != drift_free(levels, 4)
