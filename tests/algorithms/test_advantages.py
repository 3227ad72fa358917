import math
import random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.algorithms.advantages import AboveQuantile, GroupRelative, LeaveOneOut, PerSuccess

rewards = st.lists(st.floats(-100, 100, allow_nan=False), min_size=2, max_size=16)


def test_a_half_solved_group_of_four_by_hand() -> None:
    # mean 1/2, sample variance (4 * 1/4) / 3 = 1/3, so +- 0.5 * sqrt(3)
    assert GroupRelative()([1, 0, 0, 1]) == pytest.approx([0.8660254, -0.8660254, -0.8660254, 0.8660254])
    assert GroupRelative(standardize=False)([1, 0, 0, 1]) == [0.5, -0.5, -0.5, 0.5]


def test_the_sample_deviation_is_used_without_an_epsilon() -> None:
    # mean 2e-5, sample standard deviation 2e-5 * sqrt(2): an epsilon of 1e-6 would show in the third digit
    assert GroupRelative()([0.0, 4e-5]) == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], rel=1e-9)


@pytest.mark.parametrize("standardize", [True, False])
def test_a_constant_group_earns_nothing(standardize: bool) -> None:
    rng = random.Random(7)
    for _ in range(1000):
        # Rewards as an episode of Sokoban sums them: steps of -0.1, boxes of +-1, 10 when solved; in any order.
        components = [-0.1] * rng.randint(1, 10) + [1.0] * rng.randint(0, 2) + [-1.0] * rng.randint(0, 2)
        components += [10.0] * rng.randint(0, 1)
        rewards_G = [sum(rng.sample(components, len(components))) for _ in range(rng.choice([2, 8, 16]))]
        assert GroupRelative(standardize)(rewards_G) == [0.0] * len(rewards_G)


def test_leaving_a_member_out_of_its_own_baseline_by_hand() -> None:
    assert LeaveOneOut()([1, 0, 0]) == pytest.approx([1.0, -0.5, -0.5])
    assert LeaveOneOut()([3.0, None, 1.0]) == pytest.approx([2.0, 0.0, -2.0])
    assert LeaveOneOut()([3.0]) == [0.0]
    assert LeaveOneOut()([0.1 + 0.2, 0.3]) == [0.0, 0.0]


@given(rewards)
def test_leaving_one_out_stretches_the_group_relative_advantage(rewards_G: list[float]) -> None:
    stretched = [len(rewards_G) / (len(rewards_G) - 1) * value for value in GroupRelative(False)(rewards_G)]
    assert LeaveOneOut()(rewards_G) == pytest.approx(stretched, abs=1e-9)


def test_a_success_is_divided_by_how_often_the_group_succeeds() -> None:
    assert PerSuccess()([1, 0, 0, 0]) == pytest.approx([3, -1, -1, -1])
    assert PerSuccess()([1, 1, None, 0]) == pytest.approx([0.5, 0.5, 0, -1])
    assert PerSuccess()([0, 0]) == PerSuccess()([1, 1]) == PerSuccess()([0.5, -0.5]) == [0.0, 0.0]
    assert PerSuccess()([]) == []


@pytest.mark.parametrize("chance", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("size", [2, 5, 8])
def test_its_expected_step_is_the_gradient_of_log_p_cut_off_after_n_minus_1_terms(chance: float, size: int) -> None:
    # One log-odds: an episode of reward r has the score r - p. d log p = q, and 1 / p = sum of q^k: q (1 - q^(n - 1)).
    step = 0.0
    for right in range(size + 1):
        rewards_G = [1.0] * right + [0.0] * (size - right)
        pull = fmean(a * (r - chance) for a, r in zip(PerSuccess()(rewards_G), rewards_G, strict=True))
        step += math.comb(size, right) * chance**right * (1 - chance) ** (size - right) * pull
    wrong = 1 - chance
    assert step == pytest.approx(wrong * (1 - wrong ** (size - 1)), abs=1e-12)


def test_over_a_quantile_hard_tasks_learn_from_successes_and_easy_ones_from_failures() -> None:
    # Four of ten must not exceed the baseline. Rates up to .6 have the baseline 0.
    for right in range(1, 10):
        rewards_G = [1.0] * right + [0.0] * (10 - right)
        advantages_G = AboveQuantile()(rewards_G)
        assert (advantages_G[0] > 0, advantages_G[-1] < 0) == ((True, False) if right <= 6 else (False, True))
        assert min(map(abs, advantages_G)) == 0
    assert AboveQuantile(0.5)([0.0, None, 1.0, 3.0]) == pytest.approx([-0.6546537, 0, 0, 1.3093073])
    assert AboveQuantile()([2.0, 2.0]) == [0.0, 0.0]


def test_members_without_a_reward_get_nothing_and_change_nothing() -> None:
    estimate = GroupRelative()
    assert estimate([1.0, None, 0.0, math.nan]) == pytest.approx([math.sqrt(0.5), 0, -math.sqrt(0.5), 0])
    assert estimate([None, 1.0, math.nan]) == [0.0, 0.0, 0.0]
    assert estimate([3.0]) == [0.0]
    assert estimate([]) == []


@given(rewards)
def test_standardized_advantages_have_mean_zero_and_deviation_one(rewards_G: list[float]) -> None:
    advantages_G = GroupRelative()(rewards_G)
    if any(advantages_G):
        assert fmean(advantages_G) == pytest.approx(0, abs=1e-6)
        assert stdev(advantages_G) == pytest.approx(1, rel=1e-6)
    else:
        assert max(rewards_G) - min(rewards_G) <= 1e-6 * max(1, *map(abs, rewards_G))


@given(rewards, st.randoms(use_true_random=False))
def test_a_members_advantage_does_not_depend_on_its_place(rewards_G: list[float], rng: random.Random) -> None:
    order = rng.sample(range(len(rewards_G)), len(rewards_G))
    advantages_G = GroupRelative()(rewards_G)
    shuffled_G = GroupRelative()([rewards_G[place] for place in order])
    assert shuffled_G == pytest.approx([advantages_G[place] for place in order], rel=1e-9, abs=1e-9)
