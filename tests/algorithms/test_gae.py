"""Credit from values: by hand on three tokens, beside another framework's numbers, per token and per turn."""

import random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.algorithms.gae import Gae, explained_variance

# Two turns: `C D`, an observation, `F`. Rewards .25 and 1. Values of the states before C, D, F.
REWARDS, VALUES, TURNS = [0.25, 1.0], [0.5, 0.2, 0.4], [0, 0, 1]


def test_three_tokens_over_two_turns_by_hand() -> None:
    # F: 1 - .4 = .6.  D: .25 + .9 * .4 - .2 = .41, + .72 * .6 = .842.  C: .9 * .2 - .5 = -.32, + .72 * .842 = .28624
    credit = Gae(gamma=0.9, lam=0.8, per="token")(REWARDS, VALUES, TURNS)
    assert credit.advantages_T == pytest.approx([0.28624, 0.842, 0.6])
    assert credit.returns_T == pytest.approx([0.78624, 1.042, 1.0])


def test_three_tokens_per_turn_by_hand() -> None:
    # Only the step from D to F is a step between turns.
    # F: .6.  D: .25 + .9 * .4 - .2 = .41, + .72 * .6 = .842.  C: .2 - .5 = -.3, + .842 = .542
    credit = Gae(gamma=0.9, lam=0.8, per="turn")(REWARDS, VALUES, TURNS)
    assert credit.advantages_T == pytest.approx([0.542, 0.842, 0.6])
    assert credit.returns_T == pytest.approx([1.042, 1.042, 1.0])


@pytest.mark.parametrize(
    ("gamma", "lam", "raw", "whitened"),
    [
        # Numbers of verl 0.9.1, `verl/trainer/ppo/core_algos.py: compute_gae_advantage_return`, float64, on
        # token_level_rewards 0 .25 0 1, values .5 .2 9 .4, response_mask 1 1 0 1; third column and unwhitened kept out.
        (1.0, 1.0, [0.75, 1.05, 0.6], [-0.2182179, 1.0910894, -0.8728715]),
        (0.9, 0.8, [0.28624, 0.842, 0.6], [-1.0402, 0.9543, 0.0858]),
    ],
)
def test_per_token_it_agrees_with_verl(gamma: float, lam: float, raw: list[float], whitened: list[float]) -> None:
    gae = Gae(gamma, lam, per="token")
    credit = gae(REWARDS, VALUES, TURNS)
    assert credit.advantages_T == pytest.approx(raw)
    assert gae.whitened([credit.advantages_T])[0] == pytest.approx(whitened, abs=1e-4)


def test_a_reward_cannot_be_lost_where_verl_loses_it() -> None:
    # verl's function gives 0 0 0 for rewards 0 0 1 under the mask 1 1 0: the episode's last token is an observation,
    # the reward stands on it, and what stands on an observation is skipped together with it.
    credit = Gae(per="token", whiten=False)([1.0], [0.0, 0.0], [0, 0])
    assert credit.advantages_T == [1.0, 1.0]


def test_a_constant_batch_is_not_blown_up_where_verl_does() -> None:
    # verl whitens in float32 with 1e-8 under the root: of rewards of 10.9 on three tokens, and of .1 on seven, it gives
    # every token a common advantage of .0095 and 7.5e-5, where centring leaves nothing.
    for reward, tokens in ((10.9, 3), (0.1, 7)):
        gae = Gae()
        advantages = [gae([reward], [0.0] * tokens, [0] * tokens).advantages_T] * 2
        assert gae.whitened(advantages) == [[0.0] * tokens] * 2
    noisy = [[5.0, 5.0 + 1e-7, 5.0 - 1e-7]]  # the values' float32 rounding
    assert Gae().whitened(noisy) == [[0.0, 0.0, 0.0]]


def test_a_batch_of_one_token_has_nothing_to_scale_where_verl_raises() -> None:
    assert Gae().whitened([[0.7]]) == [[0.0]]
    assert Gae().whitened([[], []]) == [[], []]


def test_whitening_is_over_all_tokens_of_the_batch_alike() -> None:
    # mean 1, sample variance ((-1)^2 + 0 + 1^2) / 2 = 1; another batch twice as wide
    assert Gae().whitened([[0.0, 1.0], [2.0]]) == [[-1.0, 0.0], [1.0]]
    assert Gae().whitened([[0.0, 2.0], [4.0]]) == [[-1.0, 0.0], [1.0]]
    assert Gae(whiten=False).whitened([[0.0, 2.0], [4.0]]) == [[0.0, 2.0], [4.0]]


@given(st.lists(st.lists(st.floats(-100, 100), max_size=5), min_size=1, max_size=5))
def test_whitened_advantages_have_mean_zero_and_deviation_one_or_are_zeros(advantages_BT: list[list[float]]) -> None:
    flat = [one for advantages_T in Gae().whitened(advantages_BT) for one in advantages_T]
    if any(flat):
        assert fmean(flat) == pytest.approx(0, abs=1e-6)
        assert stdev(flat) == pytest.approx(1, rel=1e-6)


def drawn_episode(seed: int) -> tuple[list[float], list[float], list[int]]:
    rng = random.Random(seed)
    turns = [turn for turn in range(rng.randint(1, 5)) for _ in range(rng.randint(1, 6))]
    return [rng.uniform(-1, 1) for _ in range(turns[-1] + 1)], [rng.uniform(-1, 1) for _ in turns], turns


@pytest.mark.parametrize("seed", range(20))
def test_undiscounted_and_unweighted_per_turn_is_per_token_is_observed_minus_value(seed: int) -> None:
    rewards, values, turns = drawn_episode(seed)
    per_turn, per_token = Gae(per="turn")(rewards, values, turns), Gae(per="token")(rewards, values, turns)
    observed = [sum(rewards[turn:]) for turn in turns]
    assert per_turn.advantages_T == pytest.approx(per_token.advantages_T)
    assert per_turn.advantages_T == pytest.approx([one - value for one, value in zip(observed, values, strict=True)])
    assert Gae().observed(rewards, turns) == pytest.approx(observed)


@pytest.mark.parametrize("seed", range(20))
def test_per_turn_the_first_tokens_get_the_estimate_over_turns_and_later_ones_their_own_baseline(seed: int) -> None:
    rewards, values, turns = drawn_episode(seed)
    starts = [turns.index(turn) for turn in range(len(rewards))]
    per_turn = Gae(0.9, 0.7, per="turn")(rewards, values, turns).advantages_T
    turns_as_tokens = Gae(0.9, 0.7, per="token")(rewards, [values[start] for start in starts], range(len(rewards)))
    assert [per_turn[start] for start in starts] == pytest.approx(turns_as_tokens.advantages_T)
    for place, turn in enumerate(turns):
        shifted = per_turn[starts[turn]] + values[starts[turn]] - values[place]
        assert per_turn[place] == pytest.approx(shifted)


def test_with_lambda_zero_a_token_sees_one_step() -> None:
    per_token = Gae(0.9, 0.0, per="token")(REWARDS, VALUES, TURNS)
    assert per_token.advantages_T == pytest.approx([0.9 * 0.2 - 0.5, 0.25 + 0.9 * 0.4 - 0.2, 0.6])


def test_a_turn_without_tokens_gives_its_reward_to_the_last_token_before_it() -> None:
    assert Gae().observed([0.5, 1.0, -0.25], [0, 0, 2]) == [1.25, 1.25, -0.25]
    assert Gae().observed([0.5, 1.0], [0]) == [1.5]
    assert Gae().observed([0.5, 1.0], [1]) == [1.0]  # what came before the first token is not its doing
    assert Gae()([], [], []).advantages_T == []


def test_explained_variance_by_hand() -> None:
    # returns 0 1 2: variance 1. A constant explains nothing; a shift does not matter; reversed: errors
    # -2 0 2, variance 4.
    assert explained_variance([1.0, 1.0, 1.0], [0.0, 1.0, 2.0]) == 0.0
    assert explained_variance([5.0, 6.0, 7.0], [0.0, 1.0, 2.0]) == 1.0
    assert explained_variance([2.0, 1.0, 0.0], [0.0, 1.0, 2.0]) == -3.0
    assert explained_variance([0.3, 0.1], [1.0, 1.0]) is None
