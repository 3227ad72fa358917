"""Signal, noise, cosines and the bound, from inner products alone."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import stdtrit

from heedful.diagnostics.gradient.metrics import (
    GRAMS,
    PARTS,
    gradient_metrics,
    noise2,
    signal2,
)
from heedful.diagnostics.gradient.scope import GradientNoise, Side, bucket_shares
from heedful.types import Metric

Vectors = dict[str, np.ndarray]


def random_vectors(rng: np.random.Generator, groups: int, numbers: int = 5) -> Vectors:
    return {part: rng.normal(size=(groups, numbers)) for part in PARTS}


def side_of(vectors: Vectors, **changes: object) -> Side:
    groups = len(vectors["task"])
    known = {
        "grams": {(one, other): vectors[one] @ vectors[other].T for one, other in GRAMS},
        "prompt_products": {part: np.full(groups, np.nan) for part in PARTS},
        "unbiased_products_P": np.full(groups, np.nan),
        "variance_P": np.ones(groups),
        "deviation2_P": np.ones(groups),
        "score2_P": np.full(groups, 1e6),
    }
    return Side(**(known | changes))


def readings(whole: Side, halves: tuple[Side, Side] | None = None, buckets: int = 2) -> dict[str, Metric]:
    metrics = gradient_metrics(GradientNoise(whole, halves or (whole, whole)), buckets)
    found = {metric.name.removeprefix("gradient/"): metric for metric in metrics}
    assert len(found) == len(metrics)
    return found


def test_signal_and_noise_of_three_groups_are_those_by_hand() -> None:
    # Gradients (1, 0), (1, 1), (-2, 2): inner products 1, -2, 0 off the diagonal; squares 1, 2, 8; mean (0, 1).
    gram = np.array([[1.0, 1.0, -2.0], [1.0, 2.0, 0.0], [-2.0, 0.0, 8.0]])
    assert signal2(gram) == pytest.approx((1 - 2 + 0) / 3)
    assert noise2(gram) == pytest.approx((2 + 1 + 5) / (3 * 2))  # squared distances to the mean: 1 + 1, 1 + 0, 4 + 1
    assert signal2(gram) + noise2(gram) == pytest.approx(1.0)  # the squared norm of (0, 1)


def test_signal_is_the_average_over_all_half_splits_of_whole_groups() -> None:
    gradients = np.random.default_rng(0).normal(size=(6, 4))
    products = []
    for half in itertools.combinations(range(6), 3):
        other = [group for group in range(6) if group not in half]
        products.append(gradients[list(half)].mean(axis=0) @ gradients[other].mean(axis=0))
    assert signal2(gradients @ gradients.T) == pytest.approx(np.mean(products))


def test_signal_and_noise_are_unbiased_and_the_signal_is_not_clipped() -> None:
    rng = np.random.default_rng(1)
    expected, deviation, groups, numbers = np.array([0.3, -0.4, 0.0, 0.0]), 1.0, 8, 4
    found = []
    for _ in range(4000):
        gradients = expected + deviation * rng.normal(size=(groups, numbers))
        gram = gradients @ gradients.T
        found.append((signal2(gram), noise2(gram)))
    signals, noises = np.array(found).T
    assert abs(signals.mean() - 0.25) < 4 * signals.std() / math.sqrt(4000)
    assert abs(noises.mean() - numbers * deviation**2 / groups) < 4 * noises.std() / math.sqrt(4000)
    assert (signals < 0).mean() > 0.2


def test_intervals_are_the_jackknife_over_groups() -> None:
    vectors = random_vectors(np.random.default_rng(2), 7)
    found = readings(side_of(vectors))
    squares = []
    for left_out in range(7):
        kept = np.delete(vectors["kl"], left_out, axis=0)
        squares.append(signal2(kept @ kept.T))
    error = math.sqrt(6 / 7 * np.sum((np.array(squares) - np.mean(squares)) ** 2))
    half = stdtrit(6, 0.975) * error
    metric = found["all/kl_signal2"]
    assert metric.value == pytest.approx(signal2(vectors["kl"] @ vectors["kl"].T))
    assert (metric.low, metric.high) == (pytest.approx(metric.value - half), pytest.approx(metric.value + half))
    assert metric.n == 7


LEFT_OUT: dict[str, Callable[[Vectors], float]] = {
    "task_norm": lambda v: float(np.linalg.norm(v["task"].mean(axis=0))),
    "entropy_group_norm": lambda v: math.sqrt((v["entropy"] ** 2).sum(axis=1).mean()),
    "entropy_noise2": lambda v: noise2(v["entropy"] @ v["entropy"].T),
    "snr": lambda v: signal2(v["task"] @ v["task"].T) / noise2(v["task"] @ v["task"].T),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_readings_and_intervals_equal_those_recomputed_without_each_group(name: str) -> None:
    vectors = random_vectors(np.random.default_rng(3), 30)
    statistic = LEFT_OUT[name]
    metric = readings(side_of(vectors))[f"all/{name}"]
    assert metric.value == pytest.approx(statistic(vectors))
    deleted = [
        statistic({part: np.delete(rows, group, axis=0) for part, rows in vectors.items()}) for group in range(30)
    ]
    half = stdtrit(29, 0.975) * math.sqrt(29 / 30 * np.sum((np.array(deleted) - np.mean(deleted)) ** 2))
    assert metric.high == pytest.approx(metric.value + half)


def test_a_cosine_holds_what_the_jackknife_of_products_of_different_groups_cannot_reject() -> None:
    vectors = random_vectors(np.random.default_rng(3), 30)
    vectors["task"] += np.array([2.0, 1.0, 0.0, 0.0, 0.0])
    vectors["kl"] += np.array([0.0, 2.0, 0.0, 1.0, 0.0])

    def product_and_lengths(kept: np.ndarray) -> tuple[float, float]:
        task, kl = vectors["task"][kept], vectors["kl"][kept]
        gram = task @ kl.T
        others = (gram.sum() - np.trace(gram)) / (len(kept) * (len(kept) - 1))
        return float(others), math.sqrt(signal2(task @ task.T) * signal2(kl @ kl.T))

    metric = readings(side_of(vectors))["all/cosine_task_kl"]
    product, lengths = product_and_lengths(np.arange(30))
    assert metric.value == pytest.approx(product / lengths)
    deleted = np.array([product_and_lengths(np.delete(np.arange(30), group)) for group in range(30)])
    for ratio in (metric.low, metric.high):
        rest = deleted[:, 0] - ratio * deleted[:, 1]
        half = stdtrit(29, 0.975) * math.sqrt(29 / 30 * np.sum((rest - rest.mean()) ** 2))
        assert abs(product - ratio * lengths) == pytest.approx(half)


def test_constant_groups_are_a_bucket_and_equal_variances_have_equal_shares() -> None:
    one = np.array([0.0, 0.25, 0.25, 0.3, 0.0, np.nan])
    other = np.array([0.25, 0.3, 0.4, 0.0, 0.25, 0.3])
    # Of the eight spread ones: .25 four times (ranks 0 to 1/2), .3 three times (to 7/8), .4 once. Edges at thirds.
    low, middle, high = [2 / 3, 1 / 3, 0], [0, (2 / 3 - 1 / 2) / (3 / 8), (7 / 8 - 2 / 3) / (3 / 8)], [0, 0, 1]
    first, second = bucket_shares([one, other], 4)
    assert (
        pytest.approx(np.array([[1, 0, 0, 0], [0, *low], [0, *low], [0, *middle], [1, 0, 0, 0], [0, 0, 0, 0]]))
        == first.T
    )
    assert (
        pytest.approx(np.array([[0, *low], [0, *middle], [0, *high], [1, 0, 0, 0], [0, *low], [0, *middle]]))
        == second.T
    )
    distinct = bucket_shares([np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([0.0, 5.0, 6.0, 7.0, 8.0])], 5)
    whole = [[(0, 1, 1, 2, 2), (0, 3, 3, 4, 4)][side] for side in range(2)]
    for shares_BP, numbers in zip(distinct, whole, strict=True):
        assert pytest.approx(np.eye(5)[list(numbers)]) == shares_BP.T
    assert bucket_shares([np.zeros(3)], 2)[0].tolist() == [[1.0] * 3, [0.0] * 3]


def test_a_bucket_is_sorted_by_one_half_and_measured_on_the_other() -> None:
    rng = np.random.default_rng(4)
    one, other = random_vectors(rng, 6), random_vectors(rng, 6)
    halves = (
        side_of(one, variance_P=np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])),
        side_of(other, variance_P=np.array([0.0, 0.0, 2.0, 2.0, 2.0, 2.0])),
    )
    found = readings(side_of(one), halves, 2)
    # Sorted by the second half: groups 2 to 5 into bucket 1, measured on the first. By the first half: 3 to 5.
    grams = one["task"][2:] @ one["task"][2:].T, other["task"][3:] @ other["task"][3:].T
    pairs = [gram.sum() - np.trace(gram) for gram in grams]
    assert found["bucket_1/task_signal2"].value == pytest.approx(sum(pairs) / (4 * 3 + 3 * 2))
    assert found["bucket_1/task_noise2"].value == pytest.approx(np.mean([noise2(gram) for gram in grams]))
    squares = [gram.sum() / len(gram) ** 2 for gram in grams]
    assert found["bucket_1/task_norm"].value == pytest.approx(math.sqrt(np.mean(squares)))
    assert found["bucket_1/task_norm"].low is not None
    assert found["bucket_1/task_norm"].n == 4
    assert found["bucket_1/reward_variance"].value == pytest.approx((0 + 1 + 1 + 1 + 2 + 2 + 2) / 7)
    assert found["bucket_1/sorted_variance"].value == pytest.approx((2 * 4 + 1 * 3) / 7)
    # Bucket 0: the first half measures groups 0 and 1, the second 0 to 2: it can have an interval, and alone counts.
    gram = other["kl"][:3] @ other["kl"][:3].T
    assert found["bucket_0/kl_signal2"].value == pytest.approx(signal2(gram))
    assert found["bucket_0/kl_signal2"].high is not None
    assert (found["bucket_0/sorted_variance"].value, found["bucket_0/sorted_variance"].n) == (0.0, 3)


def test_choosing_buckets_by_the_noise_of_rewards_does_not_choose_what_is_measured() -> None:
    """Rewards are coin flips in every group. Sorted by what is measured, the last bucket would show more."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(30):
        rewards = [(rng.random((40, 4)) < 0.5).astype(float) for _ in range(2)]
        one, other = (side_of(random_vectors(rng, 40), variance_P=each.var(axis=1, ddof=1)) for each in rewards)
        read = readings(one, (one, other), 3)
        found.append(
            [read[f"bucket_{bucket}/{name}_variance"].value for name in ("sorted", "reward") for bucket in (0, 2)]
        )
    sorted_0, sorted_2, measured_0, measured_2 = np.mean(found, axis=0)
    # Variances of 1/4 own the ranks up to 4/7, so a seventh of the upper bucket; the rest is 1/3.
    assert (sorted_0, sorted_2) == (0.0, pytest.approx(1 / 4 / 7 + 6 / 7 / 3, abs=0.005))
    assert measured_0 == pytest.approx(0.25, abs=0.02)
    assert measured_2 == pytest.approx(0.25, abs=0.02)


def trajectories(rng: np.random.Generator, groups: int, members: int) -> tuple[np.ndarray, np.ndarray]:
    rewards = rng.choice([0.0, 1.0, 0.3], size=(groups, members))
    return rewards, rng.normal(size=(groups, members, 4)) + 3.0 * rng.normal(size=4)


def bound_side(rewards: np.ndarray, scores: np.ndarray, divided: bool = False) -> Side:
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    deviation = rewards.std(axis=1, ddof=1, keepdims=True)
    advantages = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0) if divided else centred
    task = -np.einsum("pg,pgd->pd", advantages, scores) / rewards.shape[1]
    return side_of(
        dict.fromkeys(PARTS, task),
        variance_P=rewards.var(axis=1, ddof=1),
        deviation2_P=rewards.var(axis=1),
        score2_P=(scores**2).sum(axis=2).mean(axis=1),
    )


def test_the_bound_holds_for_every_bucket_and_every_group_and_is_tight_where_rewards_follow_the_score() -> None:
    rng = np.random.default_rng(6)
    for _ in range(30):
        halves = [bound_side(*trajectories(rng, 6, 3)) for _ in range(2)]
        found = readings(halves[0], (halves[0], halves[1]), 3)
        for name in ("bound_tightness", "bound_tightness_prompt"):
            values = [metric.value for key, metric in found.items() if key.endswith(f"/{name}")]
            assert all(0 <= value <= 1 for value in values if value is not None)
            assert any(value is not None for value in values)
    # One number as the score, centred and in proportion to the reward: Cauchy-Schwarz with equality.
    rewards = rng.random((4, 5))
    scores = 2.0 * (rewards - rewards.mean(axis=1, keepdims=True))[:, :, None]
    found = readings(bound_side(rewards, scores))
    assert found["all/bound_tightness"].value == pytest.approx(1.0)
    assert found["all/bound_tightness_prompt"].value == pytest.approx(1.0)


def test_division_by_the_deviation_breaks_the_premise_of_the_bound() -> None:
    """Undivided, the norm grows with the deviation of the rewards; divided, it does not know it: beyond the bound."""
    rng = np.random.default_rng(7)
    rewards, scores = trajectories(rng, 20, 4)
    small = bound_side(0.01 * rewards, scores), bound_side(0.01 * rewards, scores, divided=True)
    large = bound_side(rewards, scores), bound_side(rewards, scores, divided=True)
    undivided = [readings(side)["all/task_norm"].value for side in (small[0], large[0])]
    divided = [readings(side)["all/task_norm"].value for side in (small[1], large[1])]
    assert undivided[1] == pytest.approx(100 * undivided[0])
    assert divided[1] == pytest.approx(divided[0])
    bound = math.sqrt(small[1].deviation2_P.mean() * small[1].score2_P.mean())
    assert divided[0] > bound


def test_the_expected_tightness_is_unbiased_where_single_groups_show_little_but_noise() -> None:
    rng = np.random.default_rng(8)
    numbers, members, found = 50, 8, []
    for _ in range(30):
        rewards = (rng.random((12, members)) < 0.5).astype(float)
        scores = rng.normal(size=(12, members, numbers))
        scores[:, :, 0] += rewards - 0.5  # covariance of reward and score: 1/4 in one of the numbers
        halves = []
        for part in (slice(None, None, 2), slice(1, None, 2)):
            centred = rewards[:, part] - rewards[:, part].mean(axis=1, keepdims=True)
            halves.append(np.einsum("pg,pgd->pd", centred, scores[:, part]) / (members / 2 - 1))
        side = bound_side(rewards, scores)
        side = Side(
            **{name: getattr(side, name) for name in Side.__slots__}
            | {"unbiased_products_P": (halves[0] * halves[1]).sum(axis=1)}
        )
        read = readings(side)
        found.append((read["all/bound_tightness2_expected"].value, read["all/bound_tightness_prompt"].value))
    expected, single = np.mean(found, axis=0)
    true = (1 / 4) ** 2 / ((1 / 4) * (numbers + 1 / 4))
    assert abs(expected - true) < 4 * np.std(found, axis=0)[0] / math.sqrt(30)
    assert single > 5 * math.sqrt(true)


def test_prompts_of_which_nothing_is_known_are_left_out_of_the_mean_over_prompts() -> None:
    vectors = random_vectors(np.random.default_rng(9), 4)
    products = {part: np.full(4, np.nan) for part in PARTS} | {"task": np.array([1.0, np.nan, 3.0, -1.0])}
    found = readings(side_of(vectors, prompt_products=products))
    assert found["all/task_prompt_signal2"].value == 1.0
    assert found["all/kl_prompt_signal2"].value is None
    assert "four members" in found["all/kl_prompt_signal2"].why


def test_what_cannot_be_told_says_why() -> None:
    rng = np.random.default_rng(10)
    vectors = random_vectors(rng, 3) | {"kl": np.zeros((3, 5)), "task": np.zeros((3, 5))}
    halves = (
        side_of(vectors, variance_P=np.array([0.0, 0.0, 5.0])),
        side_of(vectors, variance_P=np.array([0.0, 0, 5.0])),
    )
    found = readings(side_of(vectors), halves, 4)
    assert found["all/snr"].why == "the gradient is zero in every group"
    assert found["all/cosine_task_kl"].why == "one of the two gradients is zero"
    assert (found["all/kl_norm"].value, found["all/kl_norm"].low) == (0.0, None)
    assert "no group differs" in found["all/kl_norm"].why
    assert found["bucket_0/task_norm"].why == "no interval: too few groups"
    names = {name.removeprefix("bucket_0/") for name in found if name.startswith("bucket_0/")}
    for bucket in (1, 2, 3):
        of_bucket = {name.removeprefix(f"bucket_{bucket}/") for name in found if name.startswith(f"bucket_{bucket}/")}
        assert of_bucket == names
        assert found[f"bucket_{bucket}/reward_variance"].value == 5.0  # one group, a third of it in each
        assert found[f"bucket_{bucket}/task_norm"].why == "fewer than two groups"
    constant = side_of(vectors, variance_P=np.zeros(3))
    found = readings(constant, (constant, constant), 4)
    assert found["bucket_1/task_norm"].why == found["bucket_1/sorted_variance"].why == "no group has such a variance"


def test_regularisers_are_also_shown_with_the_coefficients_of_the_loss() -> None:
    whole = side_of(random_vectors(np.random.default_rng(11), 6))
    metrics = gradient_metrics(GradientNoise(whole, (whole, whole)), 2, {"kl": 0.1, "entropy": 0.0})
    found = {metric.name: metric for metric in metrics}
    norm, weighted = found["gradient/all/kl_norm"], found["gradient/all/kl_weighted_norm"]
    assert weighted.value == pytest.approx(0.1 * norm.value)
    assert weighted.high == pytest.approx(0.1 * norm.high)
    assert found["gradient/bucket_0/kl_weighted_norm"].value is None
    assert not any("entropy_weighted" in name for name in found)
