import math
import random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.algorithms.advantages import GroupRelative, LeaveOneOut

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
