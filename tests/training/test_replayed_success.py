"""Replay of a success: its expected step over everything that an older policy can sample, against the gradient of p."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from heedful.training.replay import CAP, LogProbs, Success, replayed
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, TrainingSample, Trajectory, Turn

TASK = Task("task", 0, "train")
ACTIONS, TURNS = 3, 2
OLD = ((0.2, -0.1, 0.6), (0.5, 0.3, -0.4))
NOW = ((0.5, 0.1, 0.3), (0.1, 0.4, -0.2))
FAR = ((3.0, -0.1, 0.6), (0.5, 2.3, -0.4))
"""Logits of the action of each turn."""
EPISODES = list(itertools.product(range(ACTIONS), repeat=TURNS))
RIGHT = [(0, 1), (2, 2)]


def chances(logits_K: Sequence[float]) -> list[float]:
    total = math.fsum(map(math.exp, logits_K))
    return [math.exp(logit) / total for logit in logits_K]


def log_prob(policy: Sequence[Sequence[float]], turn: int, action: int) -> float:
    return math.log(chances(policy[turn])[action])


def probability(policy: Sequence[Sequence[float]], episode: Sequence[int]) -> float:
    return math.exp(math.fsum(log_prob(policy, turn, action) for turn, action in enumerate(episode)))


def success_of(policy: Sequence[Sequence[float]]) -> float:
    return math.fsum(probability(policy, episode) for episode in RIGHT)


def score(policy: Sequence[Sequence[float]], episode: Sequence[int]) -> list[list[float]]:
    """The gradient of the log-probability of an episode, by the logits."""
    return [
        [float(other == action) - chance for other, chance in enumerate(chances(policy[turn]))]
        for turn, action in enumerate(episode)
    ]


def trajectory(
    policy: Sequence[Sequence[float]], episode: Sequence[int], member: int = 0, version: int = 3
) -> Trajectory:
    """Each turn has a prompt of one token, and restarts: a row of its own. The action is the id."""
    outcome = float(tuple(episode) in RIGHT)
    turns = tuple(
        Turn(
            Reply(
                Prompt("", (10 + turn,), restarts=turn > 0),
                (action,),
                "",
                (log_prob(policy, turn, action),),
                (),
                Span(0, 0),
                Span(0, 1),
                True,
                False,
            ),
            {"solved": outcome} if turn == TURNS - 1 else {},
            (),
            True,
            "",
            "",
        )
        for turn, action in enumerate(episode)
    )
    return Trajectory(TASK, member, turns, Ending.FAILED, outcome, policy_version=version)


def scoring(policy: Sequence[Sequence[float]]) -> LogProbs:
    def logprobs(samples: Sequence[TrainingSample]) -> list[list[float]]:
        return [[log_prob(policy, sample.ids[0] - 10, sample.ids[1])] for sample in samples]

    return logprobs


def expected_step(policy: Sequence[Sequence[float]], fresh: Sequence[Sequence[int]]) -> list[list[float]]:
    """Over the successes of the old policy: the sum over trained tokens of advantage x score."""
    group = Group(TASK, tuple(trajectory(policy, each, member, 7) for member, each in enumerate(fresh)))
    total, old = [[0.0] * ACTIONS for _ in range(TURNS)], success_of(OLD)
    for episode in RIGHT:
        success = Success.of(Group(TASK, (trajectory(OLD, (1, 1)), trajectory(OLD, episode, 1))), old)
        assert success is not None
        samples, _ = replayed({0: success}, [group], scoring(policy))
        assert [(sample.group, sample.member) for sample in samples] == [(0, len(fresh))] * TURNS
        for sample in samples:
            turn, action = sample.ids[0] - 10, sample.ids[1]
            assert sample.logprobs[1] == log_prob(policy, turn, action)  # ratios of the update begin at 1
            assert not sample.regularised
            for other, value in enumerate(score(policy, episode)[turn]):
                total[turn][other] += probability(OLD, episode) / old * sample.advantages[1] * value
    return total


def ascent(policy: Sequence[Sequence[float]], weights: dict[tuple[int, ...], float]) -> list[list[float]]:
    total = [[0.0] * ACTIONS for _ in range(TURNS)]
    for episode, weight in weights.items():
        for turn, row in enumerate(score(policy, episode)):
            for other, value in enumerate(row):
                total[turn][other] += weight * value
    return total


def assert_same(found: list[list[float]], wanted: list[list[float]]) -> None:
    for mine, true in zip(found, wanted, strict=True):
        assert mine == pytest.approx(true, abs=1e-10)


def test_the_expected_step_is_the_gradient_of_the_chance_of_success() -> None:
    failed = [(1, 1), (0, 0), (1, 2)]
    gradient = ascent(NOW, {episode: probability(NOW, episode) for episode in RIGHT})
    assert_same(expected_step(NOW, failed), gradient)
    nudge, (turn, action) = 1e-6, (1, 2)
    moved = [list(row) for row in NOW]
    moved[turn][action] += nudge
    assert gradient[turn][action] == pytest.approx((success_of(moved) - success_of(NOW)) / nudge, rel=1e-4)


def test_the_baseline_is_the_mean_of_the_fresh_members() -> None:
    fresh = [(1, 1), (0, 1), (2, 2), (1, 0)]
    gradient = ascent(NOW, {episode: probability(NOW, episode) / 2 for episode in RIGHT})
    assert_same(expected_step(NOW, fresh), gradient)


def test_a_success_that_became_much_likelier_counts_twice_at_most() -> None:
    ratios = {episode: probability(FAR, episode) / probability(OLD, episode) for episode in RIGHT}
    assert min(ratios.values()) < CAP < max(ratios.values())
    capped = {episode: min(CAP, ratio) * probability(OLD, episode) for episode, ratio in ratios.items()}
    assert_same(expected_step(FAR, [(1, 1), (1, 0)]), ascent(FAR, capped))


def test_what_was_replayed_is_told_with_its_age_in_steps() -> None:
    old = trajectory(OLD, (0, 1))
    success = Success.of(Group(TASK, (old,)), 0.25)
    assert success is not None
    groups = [Group(TASK, (trajectory(NOW, (1, 1), version=version),)) for version in (4, 9)]
    _, told = replayed({0: success, 1: success}, groups, scoring(NOW))
    values = {metric.name: (metric.value, metric.n) for metric in told}
    ratio = probability(NOW, (0, 1)) / probability(OLD, (0, 1))
    assert values == {
        "treat/replayed": (2.0, 2),
        "treat/replay_age": (3.5, 2),
        "treat/replay_ratio": (pytest.approx(ratio), 2),
    }
    samples, told = replayed({}, groups, scoring(NOW))
    assert (samples, [metric.value for metric in told]) == ([], [0.0, None, None])


def test_a_group_without_a_success_stores_none() -> None:
    failed = trajectory(OLD, (1, 1))
    assert Success.of(Group(TASK, (failed, replace(failed, outcome=None))), 0.5) is None
