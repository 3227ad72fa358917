"""Per-turn credit by hand, and its expectation over a game in which the policy decides when to stop, taken exactly."""

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.algorithms.advantages import LeaveOneOut
from heedful.algorithms.returns import TurnReturns

Rewards = Sequence[Sequence[float]]


def test_three_members_of_three_two_and_one_turns_by_hand() -> None:
    # returns to go: [1.5, 1, 1], [1, 0], [0]; others' means: turn 1: .5 .75 1.25; turn 2: 0 .5; turn 3: 0
    advantages_GK = TurnReturns()([[0.5, 0.0, 1.0], [1.0, 0.0], [0.0]])
    assert advantages_GK == [[1.0, 1.0, 1.0], [0.25, -0.5], [-1.25]]


def test_gamma_discounts_once_per_turn() -> None:
    # returns to go at gamma 1/2: [.25, .5, 1], [1]
    assert TurnReturns(gamma=0.5)([[0.0, 0.0, 1.0], [1.0]]) == [[-0.75, 0.5, 1.0], [0.75]]


def test_standardising_divides_a_turn_by_the_groups_deviation_at_that_turn() -> None:
    # turn 1: returns 1, 0, 0: deviation sqrt(1/3); turn 2: returns 1, 0 and an ended member's 0: the same
    advantages_GK = TurnReturns(standardize=True)([[0.0, 1.0], [0.0, 0.0], [0.0]])
    root = math.sqrt(3)
    assert advantages_GK[0] == pytest.approx([root, root])
    assert advantages_GK[1] == pytest.approx([-root / 2, -root / 2])
    assert advantages_GK[2] == pytest.approx([-root / 2])


def test_a_turn_from_which_all_earned_the_same_earns_nothing() -> None:
    # 0.1 + 0.2 is not 0.3 in floating point: equal totals, summed in another order
    advantages_GK = TurnReturns()([[0.1, 0.2], [0.3, 0.0]])
    assert advantages_GK[0][0] == advantages_GK[1][0] == 0.0
    assert advantages_GK[0][1] == pytest.approx(0.2)
    assert TurnReturns(standardize=True)([[1.0], [1.0], [1.0]]) == [[0.0]] * 3


def test_unscored_members_change_nothing_and_get_nothing() -> None:
    assert TurnReturns()([[1.0, 2.0], None, [0.0]]) == [[3.0, 2.0], [], [-3.0]]
    assert TurnReturns()([[1.0, 2.0], None]) == [[0.0, 0.0], []]
    assert TurnReturns()([]) == []


@pytest.mark.filterwarnings("error")
def test_rewards_of_any_type_of_number_give_the_same() -> None:
    rewards_GK = [[1.0, 0.0], [0.0, 1.0]]
    for kind in (np.float16, np.float32, np.int8, np.bool_):
        assert TurnReturns()(np.array(rewards_GK, dtype=kind)) == TurnReturns()(rewards_GK)  # type: ignore[arg-type]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8))
def test_with_one_turn_it_is_leave_one_out(rewards_G: list[float]) -> None:
    per_turn = TurnReturns()([[reward] for reward in rewards_G])
    expected = LeaveOneOut()(rewards_G)
    assert [advantage for (advantage,) in per_turn] == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=4), min_size=2, max_size=4))
def test_a_members_baseline_does_not_depend_on_what_it_did(rewards_GK: list[list[float]]) -> None:
    changed = [[7.0, -3.0, 2.0], *rewards_GK[1:]]
    here, there = TurnReturns()(rewards_GK)[0], TurnReturns()(changed)[0]
    for turn in range(min(len(rewards_GK[0]), 3)):
        baseline = sum(rewards_GK[0][turn:]) - here[turn]
        other = sum(changed[0][turn:]) - there[turn]
        # Where all earned the same the advantage is an exact 0, and the baseline is off by the tolerance at the most.
        assert baseline == pytest.approx(other, abs=1e-4)


# The game. Before each of at most three turns the agent sees whether the lamp is lit and goes on or stops. Going on
# costs and may light the lamp; stopping pays if it is lit. After the third turn it is over.

TURNS, COST, LIGHTS, PAYS = 3, -0.125, 0.375, 1.0
LOGITS = {(turn, lit): 0.3 * turn - 0.5 * lit + 0.2 for turn in range(TURNS) for lit in (0, 1)}


class Episode(NamedTuple):
    probability: float
    rewards: tuple[float, ...]
    scores: tuple[tuple[tuple[int, int], float], ...]
    """Per turn the state and the derivative of the log-probability of its choice by the state's logit."""


def going_on(state: tuple[int, int]) -> float:
    return 1 / (1 + math.exp(-LOGITS[state]))


def episodes(turn: int = 0, lit: int = 0) -> list[Episode]:
    """Every episode from here on, with its probability."""
    if turn == TURNS:
        return [Episode(1.0, (), ())]
    state, p = (turn, lit), going_on((turn, lit))
    found = [Episode(1 - p, (PAYS * lit,), ((state, -p),))]
    for after, chance in ((1, 1.0),) if lit else ((0, 1 - LIGHTS), (1, LIGHTS)):
        for rest in episodes(turn + 1, after):
            scores = ((state, 1 - p), *rest.scores)
            found.append(Episode(p * chance * rest.probability, (COST, *rest.rewards), scores))
    return found


def true_gradient() -> dict[tuple[int, int], float]:
    gradient = dict.fromkeys(LOGITS, 0.0)
    for episode in episodes():
        for state, score in episode.scores:
            gradient[state] += episode.probability * sum(episode.rewards) * score
    return gradient


def expected_estimate(size: int, advantages: Callable[[Rewards], Rewards]) -> dict[tuple[int, int], float]:
    """The expectation of mean over members of sum over turns of advantage x score, over every group there can be."""
    gradient = dict.fromkeys(LOGITS, 0.0)
    for group in itertools.product(episodes(), repeat=size):
        probability = math.prod(episode.probability for episode in group)
        for episode, advantages_K in zip(group, advantages([one.rewards for one in group]), strict=True):
            for (state, score), advantage in zip(episode.scores, advantages_K, strict=True):
                gradient[state] += probability * advantage * score / size
    return gradient


def per_turn_index(rewards_GK: Rewards) -> Rewards:
    """The baseline of turn t is its mean reward over the members that reached it; the differences are added up."""
    means = [
        fmean(rewards[turn] for rewards in rewards_GK if turn < len(rewards))
        for turn in range(max(map(len, rewards_GK)))
    ]
    centred = [[reward - mean for reward, mean in zip(rewards, means, strict=False)] for rewards in rewards_GK]
    return [[sum(differences[turn:]) for turn in range(len(differences))] for differences in centred]


def parallel(one: dict[tuple[int, int], float], other: dict[tuple[int, int], float]) -> float:
    """The cosine of two gradients."""
    product = sum(one[state] * other[state] for state in LOGITS)
    return product / math.sqrt(sum(x * x for x in one.values()) * sum(x * x for x in other.values()))


def test_the_games_episodes_are_all_there_and_stopping_is_the_policys_choice() -> None:
    assert sum(episode.probability for episode in episodes()) == pytest.approx(1, abs=1e-15)
    assert {len(episode.rewards) for episode in episodes()} == {1, 2, 3}
    # The derivative by one logit, taken by differences of the exact expected reward.
    step, state = 1e-6, (1, 1)
    expected = []
    for shift in (step, -step):
        LOGITS[state] += shift
        expected.append(sum(episode.probability * sum(episode.rewards) for episode in episodes()))
        LOGITS[state] -= shift
    assert true_gradient()[state] == pytest.approx((expected[0] - expected[1]) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("size", [2, 3])
def test_the_expected_estimate_is_the_policy_gradient(size: int) -> None:
    assert expected_estimate(size, TurnReturns()) == pytest.approx(true_gradient(), abs=1e-12)


@pytest.mark.parametrize("size", [2, 3])
def test_a_baseline_per_turn_index_estimates_another_gradient_where_the_policy_decides_when_to_stop(size: int) -> None:
    estimate, truth = expected_estimate(size, per_turn_index), true_gradient()
    # Not a matter of scale: a centred group is shorter by (G - 1) / G, which no direction would show.
    assert parallel(estimate, truth) < 0.97
    # An episode that stops is spared the mean rewards of later turns: here they pay, so stopping looks too good.
    assert estimate[0, 0] < 0 < truth[0, 0]
    assert parallel(expected_estimate(size, TurnReturns()), truth) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("size", [2, 3])
def test_standardising_estimates_another_gradient(size: int) -> None:
    assert parallel(expected_estimate(size, TurnReturns(standardize=True)), true_gradient()) < 0.999
