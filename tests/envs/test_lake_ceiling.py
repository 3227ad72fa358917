"""The best possible success on a slippery lake: by hand, by an agent of one action, and against all who play."""

from __future__ import annotations

import random

import pytest

from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.frozen_lake.maps import Lake, best_success, neighbours
from heedful.rollout.baselines import best_fixed_sequence, fixed_sequence_success
from heedful.run.evaluation.held_out import measure_baselines
from heedful.types import Task
from scripted_episodes import play

LAKE = Lake(Task("", 0, ""), 2, (False,) * 4, start=0, goal=1, distances=(1, 0, 2, 1))
"""Start at the top left, goal at the top right, no hole."""


@pytest.mark.parametrize("slip", [0.0, 0.3, 2 / 3, 0.8, 1.0])
def test_one_action_succeeds_as_intended_or_by_slipping(slip: float) -> None:
    # Right: as intended. Up or Down: by slipping to the right.
    assert best_success(LAKE, slip, turns=1, per_turn=1) == pytest.approx(max(1 - slip, slip / 2))


def test_two_turns_are_those_worked_out_by_hand() -> None:
    # Right first: 1/2 arrives, 1/4 stays (slipped up, into the edge), 1/4 is below, from where one action is too few.
    # From the start again 1/2. So 1/2 + 1/4 * 1/2 = 0.625. Up first: 1/4 arrives, 3/4 stay, 1/4 + 3/4 * 1/2 = 0.625.
    assert best_success(LAKE, 0.5, turns=2, per_turn=1) == pytest.approx(0.625)
    # In one turn both actions are fixed beforehand, which loses nothing here: Right Right.
    assert best_success(LAKE, 0.5, turns=1, per_turn=2) == pytest.approx(0.625)


def closed_loop(lake: Lake, slip: float, cell: int, actions: int) -> float:
    """The textbook recursion of an agent that sees the lake after every action."""
    if cell == lake.goal or lake.holes[cell] or not actions:
        return float(cell == lake.goal)
    after = [closed_loop(lake, slip, target, actions - 1) for target in neighbours(lake.size)[cell]]
    return max((1 - slip) * after[a] + slip / 2 * (after[(a + 1) % 4] + after[(a - 1) % 4]) for a in range(4))


@pytest.mark.parametrize("slip", [0.1, 0.5, 1.0])
def test_with_one_action_a_turn_it_is_the_textbook_value_and_more_a_turn_can_only_lose(slip: float) -> None:
    env = FrozenLake(turns=4, actions_per_turn=1, slip=slip)
    for seed in range(12):
        lake = env.start_state(seed)
        textbook = closed_loop(lake, slip, lake.start, 4)
        assert best_success(lake, slip, 4, 1) == pytest.approx(textbook)
        together = best_success(lake, slip, 2, 2)
        assert together is not None
        assert together <= textbook + 1e-12


def test_nobody_who_plays_beats_it_and_a_greedy_reader_comes_close() -> None:
    env = FrozenLake(slip=0.3)
    tasks = evaluation_tasks(env, "val", 80)
    ceiling = measure_baselines(env, "val", 80, search_tasks=40).best
    assert ceiling is not None
    assert isinstance(ceiling.value, float)
    blind = fixed_sequence_success(env, tasks, best_fixed_sequence(env, tasks[:40])).rate
    rng, solved = random.Random(0), 0
    for task in tasks:
        replies = [reply for _, reply in env.demonstrate(task, rng)]
        steps = play(env, task, 0, lambda text, turn, replies=replies: replies[turn])  # type: ignore[misc]
        solved += steps[-1].outcome == 1.0
    assert blind < solved / 80 < ceiling.value + 5 * 0.5 / 80**0.5
    assert ceiling.value > 0.6


def test_what_would_take_long_is_unknown_and_without_slip_every_task_can_be_solved() -> None:
    assert best_success(LAKE, 0.5, turns=1, per_turn=8) is None
    unknown = measure_baselines(FrozenLake(slip=0.5, actions_per_turn=8), "val", 4, search_tasks=0).best
    assert unknown is not None
    assert (unknown.value, unknown.why) == (None, "the environment does not know it for every task")
    sure = measure_baselines(FrozenLake(), "val", 50, search_tasks=0).best
    assert sure is not None
    assert (sure.name, sure.value, sure.n) == ("eval/val/best/success", 1.0, 50)
