"""The advantages of a batch, split by component and by kind of group."""

from __future__ import annotations

import math
from typing import Any

import pytest

from heedful.algorithms.advantages import GroupRelative, LeaveOneOut
from heedful.algorithms.gae import Gae
from heedful.algorithms.returns import TurnReturns
from heedful.training.gradients.components import split_advantages
from heedful.training.samples import credit, merge_rows
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn, Verdict

KEPT = Verdict(1.0, "kept", None)


def episode(member: int, outcome: float, *turns: dict[str, float]) -> Trajectory:
    reply = Reply(Prompt("", (1, 2)), (3, 4), "", (-1.0, -1.0), (), Span(0, 0), Span(0, 0), True, False)
    made = tuple(Turn(reply, rewards, (), True, "", "") for rewards in turns)
    return Trajectory(Task("t", 0, "train"), member, made, Ending.FAILED, outcome)


def group(*episodes: Trajectory) -> Group:
    return Group(Task("t", 0, "train"), episodes)


MIXED = group(episode(0, 1.0, {"solved": 1.0, "fluency": 0.0}), episode(1, 0.0, {"solved": 0.0, "fluency": 0.5}))
FAILED = group(episode(0, 0.0, {"solved": 0.0, "fluency": 0.3}), episode(1, 0.0, {"solved": 0.0, "fluency": 0.1}))


def split(groups: list[Group], estimator: Any, values: Any = None) -> tuple[dict[str, Any], list[Any]]:
    rows = merge_rows(groups, [KEPT] * len(groups))
    samples = credit(rows, groups, estimator, values)
    return split_advantages(samples, rows, groups, estimator), [sample.advantages for sample in samples]


def assert_adds_up(parts: dict[str, Any], whole: list[Any]) -> None:
    for place, advantages in enumerate(whole):
        for token, advantage in enumerate(advantages):
            assert math.fsum(part[place][token] for part in parts.values()) == pytest.approx(advantage, abs=1e-12)


def test_components_share_the_deviation_of_the_whole_reward() -> None:
    # Rewards 1 and .5: mean .75, deviation sqrt(2) / 4. Solved alone is +-.5, fluency alone -+.25.
    parts, whole = split([MIXED, FAILED], GroupRelative())
    deviation = math.sqrt(2) / 4
    assert [one[2] for one in parts["solved_varied"]] == pytest.approx([0.5 / deviation, -0.5 / deviation, 0, 0])
    assert [one[2] for one in parts["fluency_varied"]] == pytest.approx([-0.25 / deviation, 0.25 / deviation, 0, 0])
    # In the failed group the outcome is constant: rewards .3 and .1, deviation .1 sqrt(2).
    assert [one[2] for one in parts["fluency_constant"]] == pytest.approx([0, 0, math.sqrt(0.5), -math.sqrt(0.5)])
    assert set(parts) == {"solved_varied", "fluency_varied", "fluency_constant"}  # what is 0 everywhere is left out
    assert_adds_up(parts, whole)


def test_a_group_of_one_total_reward_has_no_part_though_its_components_differ() -> None:
    even = group(episode(0, 1.0, {"solved": 1.0, "fluency": 0.0}), episode(1, 0.0, {"solved": 0.0, "fluency": 1.0}))
    assert split([even], GroupRelative())[0] == {}


@pytest.mark.parametrize(
    "estimator",
    [LeaveOneOut(), GroupRelative(standardize=False), TurnReturns(gamma=0.9), TurnReturns(standardize=True)],
)
def test_the_parts_of_every_group_estimator_add_up(estimator: Any) -> None:
    turns = group(
        episode(0, 1.0, {"solved": 0.0, "step": -0.1}, {"solved": 1.0, "step": -0.2}),
        episode(1, 0.0, {"solved": 0.0, "step": -0.3}),
        episode(2, 0.0, {"solved": 0.0, "step": -0.1}, {"solved": 0.2, "step": math.nan}),
    )
    parts, whole = split([turns, FAILED], estimator)
    assert_adds_up(parts, whole)
    assert {"solved_varied", "step_varied", "fluency_constant"} <= set(parts)


@pytest.mark.parametrize("whiten", [True, False])
def test_what_values_and_whitening_add_is_the_critics(whiten: bool) -> None:
    groups = [MIXED, FAILED]
    values = [(0.0, 0.0, 0.2, 0.4)] * 4
    parts, whole = split(groups, Gae(whiten=whiten), values)
    assert_adds_up(parts, whole)
    assert "critic" in parts
    if not whiten:  # lambda 1: the reward from here on, without the values
        assert [one[2:] for one in parts["solved_varied"]] == [(1.0, 1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]
        assert parts["critic"][0][2:] == pytest.approx((-0.2, -0.4))


def test_an_estimator_that_is_not_a_sum_has_one_part() -> None:
    class Ranks:
        def member_advantages(self, trajectories_G: Any) -> list[float]:
            return [1.0, -1.0]

    parts, whole = split([MIXED], Ranks())
    assert set(parts) == {"reward_varied"}
    assert_adds_up(parts, whole)
