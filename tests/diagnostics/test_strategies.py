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


def told(*actions_of_prompts, seed=0):
    groups = [
        first_turns(number, *(acted(number, 5, action, name=action and str(action)) for action in actions))
        for number, actions in enumerate(actions_of_prompts)
    ]
    found = {m.name.removeprefix("grounding/"): m for m in input_to_action(groups, np.random.default_rng(seed))}
    assert list(found) == ["input_to_action", "input_to_action_plugin", "input_to_action_p_value"]
    return found


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
    assert found["input_to_action_plugin"].value == pytest.approx(math.log(2))
    assert found["input_to_action"].value == pytest.approx(math.log(2))
    assert found["input_to_action_p_value"].value == pytest.approx(1 / 201)
    assert found["input_to_action"].n == 16


def test_an_action_that_the_prompt_does_not_move_tells_nothing() -> None:
    found = told(*[[1, 1, 2, 2]] * 5)
    assert found["input_to_action_plugin"].value == pytest.approx(0.0, abs=1e-12)
    assert found["input_to_action"].value < 0
    assert found["input_to_action_p_value"].value == 1.0


def test_the_plug_in_is_the_mutual_information_of_the_counts() -> None:
    found = told([1, 1, 1, 2], [1, 2, 2, 2], [1, 1, 2, 2])
    within = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    expected = math.log(2) - (2 * within + math.log(2)) / 3
    assert found["input_to_action_plugin"].value == pytest.approx(expected)


def test_the_interval_of_the_plug_in_is_that_of_readings_without_one_prompt() -> None:
    from heedful.diagnostics.statistics.intervals import jackknife_interval

    rng = random.Random(1)
    prompts = [[rng.randrange(1, 4) for _ in range(rng.randint(4, 9))] for _ in range(6)]
    whole = told(*prompts)["input_to_action_plugin"]
    deleted = [told(*prompts[:out], *prompts[out + 1 :])["input_to_action_plugin"].value for out in range(6)]
    assert (whole.low, whole.high) == pytest.approx(tuple(jackknife_interval(whole.value, np.array(deleted))))


def test_chance_takes_away_what_few_actions_feign() -> None:
    readings, p_values = [], []
    for seed in range(60):
        rng = random.Random(seed)
        found = told(*[[rng.randrange(1, 5) for _ in range(8)] for _ in range(8)], seed=seed)
        readings.append(found["input_to_action"].value)
        p_values.append(found["input_to_action_p_value"].value)
        assert found["input_to_action_plugin"].value > 0.05
    assert abs(np.mean(readings)) < 3 * np.std(readings) / 60**0.5
    assert np.mean(np.array(p_values) <= 0.05) < 0.15


def test_a_reply_that_could_not_be_executed_is_an_action_of_its_own() -> None:
    found = told([1] * 4, [""] * 4, [1] * 4, [""] * 4)
    assert found["input_to_action_plugin"].value == pytest.approx(math.log(2))


def test_prompts_with_few_actions_are_left_out() -> None:
    found = told([1] * 4, [2] * 4, [3] * 3)
    assert found["input_to_action_plugin"].value == pytest.approx(math.log(2))
    assert found["input_to_action_plugin"].n == 8
    assert found["input_to_action"].why == "no interval: an interval needs at least 8 prompts"
    assert found["input_to_action_plugin"].why == "no interval: an interval needs at least 3 prompts"
    few = told([1] * 3, [2] * 4)
    assert {metric.value for metric in few.values()} == {None}
    assert few["input_to_action"].why == "needs at least 2 prompts with 4 actions each, found 1"


def test_free_text_and_silence_tell_nothing_that_could_be_counted() -> None:
    free = told(*[[10 * prompt + member for member in range(1, 5)] for prompt in range(1, 4)])
    assert free["input_to_action"].why == "free text: 12 of 12 first actions are no other reply's"
    assert told([""] * 4, [""] * 4)["input_to_action"].why == "no turn names an action"
