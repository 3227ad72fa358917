import math
import random

import numpy as np
import pytest
from episodes import by_name, episode, group, turn
from first_turns import acted
from first_turns import group as first_turns

from heedful.diagnostics.actions.strategies import input_to_action, strategy_metrics
from heedful.types import Reply, Turn

REPLY: Reply = turn().reply


def played(*actions, state="", valid=True):
    return Turn(REPLY, {}, actions, valid, "", state)


def told(*actions_of_prompts):
    return input_to_action(
        [
            first_turns(number, *(acted(number, 5, action, name=action and str(action)) for action in actions))
            for number, actions in enumerate(actions_of_prompts)
        ]
    )


def test_entropy_and_share_of_strategies_are_taken_within_groups() -> None:
    groups = [
        group(
            "a",
            episode(0.0, played("L"), played("R")),
            episode(0.0, played("L", "R")),  # cut into turns otherwise, the same play
            episode(0.0, played("R")),
            episode(0.0, played("R", "L")),
        ),
        group("b", episode(0.0, played("L")), episode(1.0, played("L"))),
        group("c", episode(0.0, played("L"))),
    ]
    found = by_name(strategy_metrics(groups))
    first = 0.5 * math.log(2) + 0.5 * math.log(4)
    assert found["grounding/strategy_entropy"].value == pytest.approx(first / 2)
    assert found["grounding/distinct_strategies"].value == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert found["grounding/strategy_entropy"].n == 2
    assert found["grounding/strategy_entropy"].low == 0.0
    assert found["grounding/distinct_strategies"].high == 1.0


def test_strategies_need_actions_and_company() -> None:
    alone = by_name(strategy_metrics([group("a", episode(0.0, played("L")))]))
    assert alone["grounding/strategy_entropy"].why == "no group has two episodes"
    mute = by_name(strategy_metrics([group("a", episode(0.0, played()), episode(0.0, played()))]))
    assert mute["grounding/distinct_strategies"].why == "no turn names an action"
    assert by_name(strategy_metrics([]))["grounding/oscillation_rate"].why == "no turn reports a state"
    one = by_name(strategy_metrics([group("a", episode(0.0, played("L")), episode(0.0, played("R")))]))
    assert one["grounding/strategy_entropy"].value == pytest.approx(math.log(2))
    assert one["grounding/strategy_entropy"].why == "no interval: a single task"


@pytest.mark.parametrize(
    ("turns", "idle"),
    [
        ([("R", "1"), ("R", "2"), ("R", "3")], 0),
        ([("R", "1"), ("L", "0"), ("R", "1"), ("L", "0")], 2),  # to and fro: the second round repeats the first
        ([("R", "1"), ("U", "1"), ("D", "1")], 2),  # against the wall
        ([("R", "1"), ("L", "0"), ("U", "1")], 0),  # back in a place, on another way
        ([("", "0"), ("", "0")], 2),  # nothing could be executed, from the first turn on
        ([("R", ""), ("R", ""), ("R", "1")], 0),
    ],
)
def test_turns_that_lead_nowhere(turns: list[tuple[str, str]], idle: int) -> None:
    moves = [played(*filter(None, [action]), state=state, valid=bool(action)) for action, state in turns]
    found = by_name(strategy_metrics([group("a", episode(0.0, *moves)), group("b", episode(0.0, *moves))]))
    reported = sum(bool(state) for _, state in turns)
    assert found["grounding/oscillation_rate"].value == pytest.approx(idle / reported)
    assert found["grounding/oscillation_rate"].n == 2 * reported


def test_turns_are_compared_within_one_episode_only() -> None:
    same = episode(0.0, played("R", state="1"))
    assert by_name(strategy_metrics([group("a", same, same)]))["grounding/oscillation_rate"].value == 0.0


def test_an_action_that_the_prompt_fixes_tells_its_entropy() -> None:
    found = told([1] * 4, [1] * 4, [2] * 4, [2] * 4)
    assert (found.name, found.n) == ("grounding/input_to_action", 16)
    assert found.value == pytest.approx(math.log(2))


def test_an_action_that_the_prompt_does_not_move_tells_nothing() -> None:
    assert told(*[[1, 1, 2, 2]] * 5).value < 0


def test_chance_takes_away_what_few_actions_feign() -> None:
    readings = []
    for seed in range(60):
        rng = random.Random(seed)
        readings.append(told(*[[rng.randrange(1, 5) for _ in range(8)] for _ in range(8)]).value)
    assert abs(np.mean(readings)) < 3 * np.std(readings) / 60**0.5


def test_a_reply_that_could_not_be_executed_is_an_action_of_its_own() -> None:
    assert told([1] * 4, [""] * 4, [1] * 4, [""] * 4).value == pytest.approx(math.log(2))


def test_prompts_with_few_actions_are_left_out() -> None:
    found = told([1] * 4, [2] * 4, [3] * 3)
    assert (found.value, found.n) == (pytest.approx(math.log(2)), 8)
    assert found.why == "no interval: an interval needs at least 8 prompts"
    few = told([1] * 3, [2] * 4)
    assert (few.value, few.why) == (None, "needs at least 2 prompts with 4 actions each, found 1")


def test_free_text_and_silence_tell_nothing_that_could_be_counted() -> None:
    free = told(*[[10 * prompt + member for member in range(1, 5)] for prompt in range(1, 4)])
    assert free.why == "free text: 12 of 12 first actions are no other reply's"
    assert told([""] * 4, [""] * 4).why == "no turn names an action"
