"""Readings of simulated gradients against the truth that made them: cosines, and buckets of reward variance."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from test_gradient import side_of

from heedful.diagnostics.gradient.metrics import PARTS, gradient_metrics
from heedful.diagnostics.gradient.scope import GradientNoise
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


@pytest.mark.parametrize(
    "truth",
    [
        Truth(0.8, 4.0),
        *(
            pytest.param(one, marks=pytest.mark.proof)
            for one in (Truth(0.0, 4.0, shared=0.9), Truth(-0.62, 4.0, shared=0.5))
        ),
    ],
)
def test_a_cosine_is_that_of_the_expected_gradients_whatever_their_noise_shares(truth: Truth) -> None:
    found = coverage(truth, 16, 30)
    assert found.shown > 0.9
    assert found.mean == pytest.approx(truth.cosine, abs=0.06)
    assert found.covered >= 0.9


def test_a_cosine_is_not_attenuated_where_noise_is_as_large_as_the_signal() -> None:
    truth = Truth(0.8, 1.0, numbers=2000)
    found = coverage(truth, 16, 15)
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


KINDS = np.array([0.05, 0.1, 0.2, 0.3])
"""Variances of the rewards of four kinds of prompts, equally many of each."""
SIZES = np.array([1.0, 2.0, 4.0, 8.0])
"""Mean squared norms of their groups' gradients."""
TRUE_SQUARES = np.array([0.75 * 1 + 0.25 * 2, 0.5 * 2 + 0.5 * 4, 0.25 * 4 + 0.75 * 8])
"""In three buckets of equally many groups: the first holds three quarters of its first kind, and so on."""


def bucket_coverage(groups: int, batches: int, ties: bool, seed: int = 0) -> list[float]:
    """How often the intervals of the norm of a group's gradient hold the truth, for each of three buckets."""
    rng = np.random.default_rng(seed)
    held = np.zeros((batches, 3))
    for number in range(batches):
        kind_P = rng.integers(0, 4, size=groups)
        variance_P = KINDS[kind_P] if ties else KINDS[kind_P] * (1 + 0.01 * rng.random(groups))
        halves = []
        for _ in range(2):
            directions = rng.normal(size=(groups, 8))
            scales = np.sqrt(SIZES[kind_P] * rng.gamma(4.0, 0.25, size=groups))
            vectors = scales[:, None] * directions / np.linalg.norm(directions, axis=1, keepdims=True)
            halves.append(side_of(dict.fromkeys(PARTS, vectors), variance_P=variance_P))
        metrics = gradient_metrics(GradientNoise(halves[0], (halves[0], halves[1])), 4)
        found = {metric.name: metric for metric in metrics}
        for bucket, true in enumerate(np.sqrt(TRUE_SQUARES)):
            norm = found[f"gradient/bucket_{bucket + 1}/task_group_norm"]
            held[number, bucket] = norm.low is not None and norm.low <= true <= norm.high
    return [float(share) for share in held.mean(axis=0)]


def test_intervals_of_buckets_cover_the_truth_though_quantiles_move_with_the_batch() -> None:
    assert min(bucket_coverage(32, 60, ties=True)) >= 0.88


@pytest.mark.proof
@pytest.mark.parametrize("groups", [16, 32, 64])
@pytest.mark.parametrize("ties", [True, False])
def test_intervals_of_buckets_cover_the_truth_at_full_size(
    groups: int, ties: bool, record_property: Callable[[str, object], None]
) -> None:
    record_property("cases", 600)
    # With 16 groups a bucket is worth five: the page names its coverage.
    assert min(bucket_coverage(groups, 600, ties)) >= (0.86 if groups == 16 else 0.9)
