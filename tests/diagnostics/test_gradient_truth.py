"""Readings of simulated gradients against the truth that made them: cosines, and buckets of reward variance."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from test_gradient import side_of

from heedful.diagnostics.gradient import PARTS, GradientNoise, gradient_metrics
from heedful.types import Metric


class Truth(NamedTuple):
    """Gradients of task and KL: their true cosine, the SNR of a batch, and how much of the noise they share."""

    cosine: float
    snr: float
    shared: float = 0.0
    numbers: int = 100
    heavy: bool = False
    """Groups whose noise differs in size, log-normally."""


def batch(rng: np.random.Generator, truth: Truth, groups: int, members: int = 2) -> Metric:
    """The cosine read from one batch. Each member's noise is partly the same in both gradients."""
    expected = np.zeros((2, truth.numbers))
    expected[0, 0], expected[1, :2] = 1.0, (truth.cosine, np.sqrt(1 - truth.cosine**2))
    size = np.sqrt(groups * members / truth.snr / truth.numbers)
    shape = (groups, members, truth.numbers)
    common = rng.normal(size=shape)
    noises = [np.sqrt(truth.shared) * common + np.sqrt(1 - truth.shared) * rng.normal(size=shape) for _ in range(2)]
    scales = np.exp(rng.normal(size=(groups, 1)) - 1) if truth.heavy else np.ones((groups, 1))
    task, kl = (mean + size * scales * noise.mean(axis=1) for mean, noise in zip(expected, noises, strict=True))
    side = side_of(dict.fromkeys(PARTS, task) | {"kl": kl})
    metrics = gradient_metrics(GradientNoise(side, (side, side)), 2)
    return next(metric for metric in metrics if metric.name == "gradient/all/cosine_task_kl")


class Coverage(NamedTuple):
    shown: float
    """The share of batches that have a cosine."""
    covered: float
    """Of these, the share whose interval holds the truth."""
    mean: float


def coverage(truth: Truth, groups: int, batches: int, seed: int = 0) -> Coverage:
    rng = np.random.default_rng(seed)
    found = [batch(rng, truth, groups) for _ in range(batches)]
    shown = [metric for metric in found if metric.value is not None]
    covered = [metric.low <= truth.cosine <= metric.high for metric in shown]
    return Coverage(len(shown) / batches, float(np.mean(covered)), float(np.mean([metric.value for metric in shown])))


@pytest.mark.parametrize("truth", [Truth(0.8, 4.0), Truth(0.0, 4.0, shared=0.9), Truth(-0.62, 4.0, shared=0.5)])
def test_a_cosine_is_that_of_the_expected_gradients_whatever_their_noise_shares(truth: Truth) -> None:
    found = coverage(truth, 16, 60)
    assert found.shown > 0.9
    assert found.mean == pytest.approx(truth.cosine, abs=0.06)
    assert found.covered >= 0.9


def test_a_cosine_is_not_attenuated_where_noise_is_as_large_as_the_signal() -> None:
    truth = Truth(0.8, 1.0, numbers=2000)
    found = coverage(truth, 16, 30)
    assert found.shown > 0.9
    assert found.mean == pytest.approx(0.8, abs=0.05)
    assert found.covered >= 0.9


def test_no_cosine_is_shown_where_a_signal_is_not_clearly_above_zero() -> None:
    metric = batch(np.random.default_rng(0), Truth(0.8, 0.05), 16)
    assert metric.value is None
    assert metric.why == "the squared signal of task is not clearly above zero"


@pytest.mark.proof
@pytest.mark.parametrize("groups", [16, 32, 64])
@pytest.mark.parametrize("snr", [1.0, 4.0, 16.0])
@pytest.mark.parametrize("heavy", [False, True])
def test_intervals_of_cosines_cover_the_truth_at_full_size(
    groups: int, snr: float, heavy: bool, record_property: Callable[[str, object], None]
) -> None:
    batches = 400
    record_property("cases", 3 * batches)
    for cosine, shared in ((0.8, 0.0), (0.0, 0.5), (-0.62, 0.5)):
        found = coverage(Truth(cosine, snr, shared, heavy=heavy), groups, batches)
        assert found.covered >= 0.9
        assert found.mean == pytest.approx(cosine, abs=0.1)
