"""FrozenLake: the published dynamics, its limits, its rewards, its words."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import gymnasium
import pytest

from heedful.envs.common.actions import format_reply
from heedful.envs.frozen_lake.environment import FrozenLake, FrozenLakeEpisode
from heedful.envs.frozen_lake.maps import ACTIONS, neighbours, slipped
from heedful.types import Ending, Step


def act(episode: FrozenLakeEpisode, *actions: str) -> Step:
    return episode.step(format_reply(actions, "a thought"))


@pytest.mark.parametrize("slip", [0.0, 0.02, 0.3, 1.0])
def test_transitions_equal_those_of_gymnasium(slip: float) -> None:
    size, resolution = 4, 200
    reference: Any = gymnasium.make(
        "FrozenLake-v1", desc=["S" + "F" * 3, "F" * 4, "F" * 4, "F" * 3 + "G"], is_slippery=True, success_rate=1 - slip
    ).unwrapped
    for cell in range(size * size - 1):
        for action in range(4):
            expected: dict[int, float] = defaultdict(float)
            for probability, target, _, _ in reference.P[cell][action]:
                expected[target] += probability
            found: dict[int, float] = defaultdict(float)
            for number in range(resolution):
                happening = slipped(action, slip, (number + 0.5) / resolution)
                found[neighbours(size)[cell][happening]] += 1 / resolution
            for target in range(size * size):
                assert found[target] == pytest.approx(expected[target], abs=1e-9)


def test_episodes_slip_as_often_as_they_say() -> None:
    env = FrozenLake(slip=0.3, frozen=1.0, size=9, turns=9)
    moved: dict[tuple[int, int], int] = defaultdict(int)
    for member in range(2_000):
        episode = env.episode()
        episode.start(env.task(0), member)
        episode.player = before = 40
        act(episode, "Up")
        moved[divmod(episode.player - before + 40, 9)] += 1
    shares = {cell: count / 2_000 for cell, count in moved.items()}
    assert shares[(3, 4)] == pytest.approx(0.7, abs=0.05)
    assert shares[(4, 3)] == pytest.approx(0.15, abs=0.04)
    assert shares[(4, 5)] == pytest.approx(0.15, abs=0.04)


def test_shortest_solutions_stay_between_the_knob_and_the_budget() -> None:
    env = FrozenLake(turns=2, shortest=3)
    lengths = {len(env.start_state(seed).plan(env.start_state(seed).start)) for seed in range(500)}
    assert lengths == {3, 4}


def test_members_face_the_same_start_and_noise_of_their_own_unless_it_is_shared() -> None:
    def walk(env: FrozenLake, member: int) -> tuple[str, list[int]]:
        episode = env.episode()
        first = episode.start(env.task(1), member).text
        episode.player, places = 12, []
        for _ in range(20):
            act(episode, "Right" if episode.player % 5 < 3 else "Left")
            places.append(episode.player)
        return first, places

    own = FrozenLake(size=5, frozen=1.0, slip=0.5, turns=20)
    shared = FrozenLake(size=5, frozen=1.0, slip=0.5, turns=20, shared_noise=True)
    assert own.task(1) == shared.task(1)
    assert len({walk(own, member)[0] for member in range(8)}) == 1
    assert len({tuple(walk(own, member)[1]) for member in range(8)}) > 4
    assert len({tuple(walk(shared, member)[1]) for member in range(8)}) == 1


def test_slip_and_wording_do_not_change_the_task() -> None:
    tasks = [
        env.task(3)
        for env in (
            FrozenLake(),
            FrozenLake(slip=0.5),
            FrozenLake(observation="grid", instructions="brief", show_reward=True),
        )
    ]
    assert tasks[0] == tasks[1] == tasks[2]


def drawn_lake() -> FrozenLakeEpisode:
    """Seed 2, as the class docstring shows it: P__O / __GO / O___ / _O__."""
    env = FrozenLake()
    episode = env.episode()
    episode.start(env.task(2), 0)
    return episode


def test_reaching_the_goal_solves_pays_one_and_leaves_the_rest_unexecuted() -> None:
    episode = drawn_lake()
    assert act(episode, "Down", "Right").ending is None
    step = act(episode, "Right", "Right")
    assert (step.ending, step.outcome, step.progress) == (Ending.SOLVED, 1.0, 1.0)
    assert step.actions == ("Right",)
    assert dict(step.rewards) == {"solved": 1.0}
    assert step.state == "___O\n__VO\nO___\n_O__"


def test_a_hole_fails_with_no_progress() -> None:
    episode = drawn_lake()
    step = act(episode, "Down", "Down")
    assert (step.ending, step.outcome, step.progress) == (Ending.FAILED, 0.0, 0.0)
    assert dict(step.rewards) == {}
    assert step.state == "___O\n__GO\nX___\n_O__"


def test_running_out_of_turns_reports_how_far_the_agent_came() -> None:
    episode = drawn_lake()
    steps = [act(episode, "Left") for _ in range(4)]
    assert all(step.ending is None and step.progress is None for step in steps)
    last = act(episode, "Down")
    assert (last.ending, last.outcome) == (Ending.OUT_OF_TURNS, 0.0)
    assert last.progress == pytest.approx(1 / 3)


def test_a_faulty_reply_that_reaches_the_goal_is_solved_and_still_pays_the_penalty() -> None:
    episode = drawn_lake()
    act(episode, "Down", "Right")
    step = act(episode, "Right", "Jump")
    assert (step.ending, step.valid) == (Ending.SOLVED, False)
    assert dict(step.rewards) == {"solved": 1.0, "format": -0.1}


def test_the_goal_on_the_last_turn_counts() -> None:
    episode = drawn_lake()
    for _ in range(3):
        act(episode, "Up")
    act(episode, "Right", "Right")
    assert act(episode, "Down").ending is Ending.SOLVED


def test_full_instructions_are_true_for_the_configuration() -> None:
    env = FrozenLake(size=6, slip=0.25, turns=7)
    text = env.episode().start(env.task(0), 0).text
    assert "6 rows and 6 columns" in text
    assert "with probability 0.25 a move goes" in text
    still = FrozenLake()
    assert "slip" not in still.episode().start(still.task(0), 0).text


@pytest.mark.parametrize("observation", ["grid", "coordinates", "both"])
def test_the_state_is_told_whole_in_every_form(observation: str) -> None:
    env = FrozenLake(observation=observation, instructions="brief")  # type: ignore[arg-type]
    text = env.episode().start(env.task(2), 0).text
    grid, places = "P__O\n__GO\nO___\n_O__", "P 0 0 G 1 2"
    expected = {
        "grid": grid,
        "coordinates": f"{places} O 0 3 O 1 3 O 2 0 O 3 1",
        "both": f"{grid}\n{places}",
    }
    assert text == f"turns 5 moves 2\n{expected[observation]}"


def test_later_turns_show_what_is_left() -> None:
    env = FrozenLake(instructions="brief")
    episode = env.episode()
    episode.start(env.task(2), 0)
    text = act(episode, "Right").observation.text
    assert text == "turns 4 moves 2\n_P_O\n__GO\nO___\n_O__\nP 0 1 G 1 2"


def test_a_configuration_without_solvable_tasks_is_refused() -> None:
    with pytest.raises(ValueError, match="no task can be solved within its limits"):
        FrozenLake(turns=1, actions_per_turn=1)
    with pytest.raises(ValueError, match="no task that can be solved within its limits"):
        FrozenLake(frozen=0.0)
    with pytest.raises(ValueError, match="no task that can be solved within its limits"):
        FrozenLake(size=2, shortest=5)


def test_the_plan_is_a_shortest_way_over_ice() -> None:
    env = FrozenLake(size=6, frozen=0.7, turns=10)
    for seed in range(100):
        lake = env.start_state(seed)
        cell = lake.start
        plan = lake.plan(cell)
        assert len(plan) == lake.distances[lake.start]
        for move in plan:
            cell = neighbours(6)[cell][ACTIONS.index(move)]
            assert not lake.holes[cell]
        assert cell == lake.goal


def test_about_one_random_episode_in_seven_succeeds() -> None:
    env, rng, solved = FrozenLake(), random.Random(0), 0
    for seed in range(1_500):
        episode = env.episode()
        episode.start(env.task(seed), 0)
        ending = None
        while ending is None:
            ending = act(episode, rng.choice(ACTIONS), rng.choice(ACTIONS)).ending
        solved += ending is Ending.SOLVED
    assert 0.10 < solved / 1_500 < 0.18
