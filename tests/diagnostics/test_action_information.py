"""What the first action tells about the prompt: readings against policies whose information is known."""

import math

import numpy as np
import pytest
from first_turns import acted
from first_turns import group as first_turns
from scipy.special import xlogy

from heedful.diagnostics.actions.strategies import input_to_action

SIZES = [(16, 4), (16, 8), (32, 8)]
"""Prompts, and members of each."""
SHAPES = [
    "deterministic",
    "balanced",
    "independent",
    "weak",
    "noisy",
    "nearly deterministic",
    "mixed prompts",
    "two actions",
]


def entropies(shares):
    return -xlogy(shares, shares).sum(axis=-1)


def policy(shape, prompts, actions, rng):
    """The probability of each action under each prompt. The favourite of a prompt is drawn, except if balanced."""
    favourite = rng.integers(actions, size=prompts)
    other = (favourite + rng.integers(1, actions, size=prompts)) % actions
    told, even = np.eye(actions)[favourite], np.full((prompts, actions), 1 / actions)
    reads_it = np.arange(prompts)[:, None] % 2 == 0
    return {
        "deterministic": told,
        "balanced": np.eye(actions)[np.arange(prompts) % actions],
        "independent": even,
        "weak": 0.2 * told + 0.8 * even,
        "noisy": 0.5 * told + 0.5 * even,
        "nearly deterministic": 0.8 * told + 0.2 * even,
        "mixed prompts": np.where(reads_it, told, even),
        "two actions": (told + np.eye(actions)[other]) / 2,
    }[shape]


def truth(shape, actions):
    """I(X;A) over all prompts. Each action is the favourite equally often, so H(A) is the log of their number."""
    shares = policy(shape, 2, actions, np.random.default_rng(0))
    return math.log(actions) - float(np.mean(entropies(shares)))


def readings(shape, prompts, members, actions, batches, seed):
    """Batches of sampled actions, each read as a run reads it."""
    rng = np.random.default_rng(seed)
    for _ in range(batches):
        chances = policy(shape, prompts, actions, rng)
        groups = [
            first_turns(
                number, *(acted(number, 5, 1, name=str(action)) for action in rng.choice(actions, members, p=p))
            )
            for number, p in enumerate(chances)
        ]
        yield input_to_action(groups)


def judged(shape, prompts, members, actions, batches, seed):
    """Bias, and the share of intervals that hold the truth."""
    known = truth(shape, actions)
    found = list(readings(shape, prompts, members, actions, batches, seed))
    held = [metric.low - 1e-9 <= known <= metric.high + 1e-9 for metric in found]
    return float(np.mean([metric.value for metric in found])) - known, float(np.mean(held))


@pytest.mark.parametrize("actions", [4, 8])
@pytest.mark.parametrize(("prompts", "members"), [(16, 4), (16, 8)])
def test_a_deterministic_policy_reads_its_whole_information(prompts, members, actions):
    bias, held = judged("balanced", prompts, members, actions, 1, 0)
    assert bias == pytest.approx(0.0, abs=0.01)
    assert held == 1.0


@pytest.mark.parametrize("shape", ["deterministic", "independent", "noisy", "mixed prompts"])
def test_readings_are_right_at_both_ends_and_between(shape):
    bias, held = judged(shape, 16, 8, 4, 25, 1)
    assert abs(bias) < 0.1
    assert held >= 0.84, "at 90% coverage one simulation in ten has fewer than 21 of 25"


@pytest.mark.proof
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("actions", [4, 8])
@pytest.mark.parametrize(("prompts", "members"), SIZES)
def test_intervals_hold_the_true_information_in_nine_of_ten_batches(shape, actions, prompts, members, record_property):
    batches = 300
    bias, held = judged(shape, prompts, members, actions, batches, 2)
    record_property("cases", batches)
    assert abs(bias) < 0.25, "the worst is nearly deterministic, 8 actions, 16 x 4"
    assert held >= 0.9 - 2 * math.sqrt(0.9 * 0.1 / batches)
