"""The scripted players beside which every success rate is shown."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import pytest

from heedful.envs.common.actions import format_reply
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.echo import Echo, EchoEpisode
from heedful.rollout.baselines import (
    SuccessCount,
    best_fixed_sequence,
    fixed_sequence_success,
    random_policy_success,
)
from heedful.types import Observation, Step
from scripted_episodes import play


def test_play_hands_each_observation_to_the_script_and_stops_at_the_end() -> None:
    env = FrozenLake(instructions="brief")
    seen: list[tuple[str, int]] = []

    def reply(observation: str, turn: int) -> str:
        seen.append((observation.split("\n")[0], turn))
        return format_reply(["Down", "Right"] if turn == 0 else ["Right"], "")

    steps = play(env, env.task(2), 0, reply)
    assert seen == [("turns 5 moves 2", 0), ("turns 4 moves 2", 1)]
    assert steps[-1].outcome == 1.0


def test_a_perfect_script_solves_and_a_silent_one_does_not() -> None:
    env = Echo(instructions="brief")
    tasks = evaluation_tasks(env, "test", 50)
    perfect = [play(env, task, 0, lambda text, _: format_reply([text.split()[5]], "")) for task in tasks]
    assert all(steps[-1].outcome == 1.0 for steps in perfect)
    silent = [play(env, task, 0, lambda text, _: "") for task in tasks]
    assert all(steps[-1].outcome == 0.0 for steps in silent)


def test_the_random_policy_is_right_as_often_as_there_are_letters() -> None:
    env = Echo()
    tasks = evaluation_tasks(env, "train", 800)
    assert random_policy_success(env, tasks, random.Random(0)).rate == pytest.approx(1 / 8, abs=0.04)
    assert random_policy_success(env, tasks, random.Random(0)) == random_policy_success(env, tasks, random.Random(0))


@pytest.mark.parametrize("env", [FrozenLake(turns=2, shortest=1), FrozenLake(turns=4, actions_per_turn=1, slip=0.2)])
def test_the_search_comes_close_to_the_best_of_all_sequences(env: FrozenLake) -> None:
    tasks = evaluation_tasks(env, "train", 30)
    found = fixed_sequence_success(env, tasks, best_fixed_sequence(env, tasks)).solved
    best = max(
        fixed_sequence_success(env, tasks, sequence).solved for sequence in itertools.product(env.actions, repeat=4)
    )
    assert 0.85 * best <= found <= best


def test_no_single_change_of_the_last_position_improves_the_found_sequence() -> None:
    env = FrozenLake()
    tasks = evaluation_tasks(env, "train", 100)
    sequence = best_fixed_sequence(env, tasks)
    assert len(sequence) == 10
    found = fixed_sequence_success(env, tasks, sequence).solved
    for action in env.actions:
        assert fixed_sequence_success(env, tasks, (*sequence[:-1], action)).solved <= found


def test_an_input_blind_sequence_gets_no_more_than_chance_where_only_the_input_tells() -> None:
    env = Bandit()
    sequence = best_fixed_sequence(env, evaluation_tasks(env, "train", 512))
    held_out = evaluation_tasks(env, "test", 200)
    assert fixed_sequence_success(env, held_out, sequence).rate == pytest.approx(0.5, abs=0.1)


def test_the_best_sequence_beats_the_random_policy_in_seconds() -> None:
    env = FrozenLake()
    held_out = evaluation_tasks(env, "test", 256)
    before = time.process_time()
    sequence = best_fixed_sequence(env, evaluation_tasks(env, "train", 128))
    assert time.process_time() - before < 10
    assert (
        fixed_sequence_success(env, held_out, sequence).rate
        > random_policy_success(env, held_out, random.Random(0)).rate
    )


@pytest.mark.parametrize(
    ("answers", "found"),
    [(lambda tasks: None, "that it raised TypeError: 'NoneType'"), (lambda tasks: ["a", 1], "1 in place of a text")],
)
def test_blind_answers_that_are_none_are_named(answers: Any, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Echo, "blind_answers", staticmethod(answers), raising=False)
    with pytest.raises(ValueError, match=f"texts from `blind_answers` of the environment echo, found {found}"):
        best_fixed_sequence(Echo(), evaluation_tasks(Echo(), "train", 4))


class Endless(EchoEpisode):
    def step(self, response: str) -> Step:
        return Step(Observation("on and on"))


class Forever(Echo):
    def episode(self) -> EchoEpisode:
        return Endless(self)


def test_an_episode_without_an_end_ends_at_its_last_turn() -> None:
    env = Forever(turns=3)
    assert len(play(env, env.task(0), 0, lambda observation, turn: "x")) == 3
    assert random_policy_success(env, [env.task(0)], random.Random(0)) == SuccessCount(0, 1)
