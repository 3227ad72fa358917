"""Overlong shaping: the line by hand, where it stands, and what it leaves alone."""

from __future__ import annotations

import pytest

from heedful.diagnostics.statistics.group_statistics import values_on
from heedful.filters import DropConstant, TopP
from heedful.rollout.overlong import overlong_penalty, shape_overlong
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn

TASK = Task("t", 0, "train")


def reply(length: int, cut: bool = False) -> Reply:
    ids = tuple(range(length))
    return Reply(Prompt("", (1,)), ids, "", (0.0,) * length, (), Span(0, 0), Span(0, 0), True, cut)


def group(*lengths_GK: list[int], outcome: float | None = 0.0, components: dict[str, float] | None = None) -> Group:
    rewards = {"solved": 0.0} if components is None else components
    members = tuple(
        Trajectory(
            TASK, member, tuple(Turn(reply(n), rewards, (), True, "", "") for n in lengths), Ending.FAILED, outcome
        )
        for member, lengths in enumerate(lengths_GK)
    )
    return Group(TASK, members)


@pytest.mark.parametrize(("length", "cost"), [(0, 0.0), (7, 0.0), (8, 0.0), (9, -0.5), (10, -1.0), (12, -1.0)])
def test_the_line_falls_from_the_buffers_beginning_to_the_limit(length: int, cost: float) -> None:
    # Eq. 13 with a limit of 10 and a buffer of 2: 0 up to 8, -1 from 10 on.
    assert overlong_penalty(reply(length), limit=10, buffer=2, penalty=1.0) == pytest.approx(cost)


def test_the_penalty_is_in_units_of_reward_and_a_cut_reply_costs_all_of_it() -> None:
    assert overlong_penalty(reply(9), 10, 4, 0.8) == pytest.approx(-0.6)
    assert overlong_penalty(reply(3, cut=True), 10, 4, 0.8) == -0.8  # the model's window ended first


def test_it_is_a_component_of_every_turn_and_part_of_the_reward() -> None:
    (shaped,) = shape_overlong([group([5, 10], [9], outcome=1.0, components={"solved": 0.5})], 10, 0.2, 1.0)
    assert [[dict(turn.rewards) for turn in member.turns] for member in shaped.trajectories] == [
        [{"solved": 0.5, "overlong": 0.0}, {"solved": 0.5, "overlong": -1.0}],
        [{"solved": 0.5, "overlong": -0.5}],
    ]
    assert [member.reward for member in shaped.trajectories] == [pytest.approx(0.0), pytest.approx(0.0)]
    assert values_on([shaped], "overlong") == [[-1.0, -0.5]]


def test_what_was_collected_is_not_changed_and_unscored_members_stay_unscored() -> None:
    before = group([10], [2], outcome=None)
    (after,) = shape_overlong([before], 10, 0.2, 1.0)
    assert before == group([10], [2], outcome=None)
    assert [member.reward for member in after.trajectories] == [None, None]
    assert [member.outcome for member in after.trajectories] == [None, None]


def test_length_alone_makes_no_group_vary_for_a_filter_on_the_outcome() -> None:
    # A spread filter on a shaped reward keeps groups in which all failed, and the shaping is then all they teach.
    shaped = shape_overlong([group([10], [2], [9])], 10, 0.2, 1.0)
    for filter in (TopP(), DropConstant()):
        assert filter(values_on(shaped, "outcome"), None)[0].reason == "constant"  # type: ignore[arg-type]
    assert TopP(on="reward")(values_on(shaped, "reward"), None)[0].reason == "kept"  # type: ignore[arg-type]


def test_an_environment_with_a_component_of_that_name_is_refused() -> None:
    with pytest.raises(ValueError, match="rename it there, or switch shaping off"):
        shape_overlong([group([3], components={"overlong": -1.0})], 10, 0.2, 1.0)
