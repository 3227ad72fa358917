"""The actions that an environment calls right are those with which its tasks are solved."""

import random

import pytest

from heedful.envs.common.contract import right_actions_of, rightness_of
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.countdown.environment import Countdown
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.chain import Chain
from heedful.envs.toys.echo import Echo
from heedful.protocols import KnowsRight
from heedful.types import Ending, Task

ENVIRONMENTS = [Echo(turns=2), Chain(turns=2), Bandit(), FrozenLake(), Sokoban(size=5)]


@pytest.mark.parametrize("env", ENVIRONMENTS, ids=lambda env: env.name)
def test_right_actions_solve_the_task_and_the_solver_takes_them(env) -> None:
    rng = random.Random(0)
    for task in evaluation_tasks(env, "val", 3):
        demonstrated = env.episode()
        demonstrated.start(task, 0)
        first = demonstrated.step(env.demonstrate(task, rng)[0][1]).actions[0]
        assert first in right_actions_of(env, task)
        episode, before, ending = env.episode(), [], None
        episode.start(task, 0)
        while ending is None:
            action = rng.choice(sorted(right_actions_of(env, task, before)))
            step = episode.step(f"<think>a</think><answer>{action}</answer>")
            before.append(step.actions)
            ending = step.ending
            if len(before) == env.turns:
                break
        # One action a turn may be too slow for a board, but none of them is a detour.
        assert ending is Ending.SOLVED or env.name in ("frozen_lake", "sokoban")
        assert len(before) == env.turns or ending is Ending.SOLVED


@pytest.mark.parametrize("env", [FrozenLake(turns=30), Sokoban(size=5, turns=30)], ids=lambda env: env.name)
def test_every_right_action_on_a_board_is_one_step_of_a_shortest_way(env) -> None:
    rng = random.Random(1)
    for task in evaluation_tasks(env, "val", 3):
        start = env.start_state(task.seed)
        shortest = start.distances[start.start] if env.name == "frozen_lake" else start.shortest
        episode, before, ending = env.episode(), [], None
        episode.start(task, 0)
        while ending is None:
            rights = sorted(right_actions_of(env, task, before))
            step = episode.step(f"<think>a</think><answer>{rng.choice(rights)}</answer>")
            before.append(step.actions)
            ending = step.ending
        assert (ending, len(before)) == (Ending.SOLVED, shortest)


def test_on_slippery_ice_the_right_moves_are_those_of_the_best_first_turn() -> None:
    """With one move a turn: the actions whose outcomes have the best chance, one by one."""
    env = FrozenLake(size=3, slip=0.4, turns=3, actions_per_turn=1)
    task = evaluation_tasks(env, "val", 1)[0]
    rights = right_actions_of(env, task)
    assert 0 < len(rights) < 4
    solved = dict.fromkeys(env.actions, 0)
    for action in env.actions:
        for member in range(200):
            episode = env.episode()
            episode.start(task, member)
            step = episode.step(f"<think>a</think><answer>{action}</answer>")
            while step.ending is None:
                cell, lake = episode.player, episode.lake
                best = lake.plan(cell)[0] if lake.distances[cell] > 0 else action
                step = episode.step(f"<think>a</think><answer>{best}</answer>")
            solved[action] += step.ending is Ending.SOLVED
    assert max(solved, key=solved.__getitem__) in rights
    assert right_actions_of(env, task, [("Up",)]) is None
    assert (
        right_actions_of(FrozenLake(size=9, slip=0.4, actions_per_turn=5), evaluation_tasks(env, "val", 1)[0]) is None
    )


def test_an_environment_that_does_not_tell_has_no_rightness() -> None:
    env = Countdown()
    assert not isinstance(env, KnowsRight)
    assert rightness_of(env)(env.task(0)) is None


@pytest.mark.parametrize("answer", [{"a": 2.0}, ["a"], {1: 1.0}, "a"])
def test_an_answer_that_is_no_rightness_is_told_of(answer) -> None:
    class Maze(Echo):
        def right_actions(self, task: Task, before=()):
            return answer

    env = Maze()
    with pytest.raises(ValueError, match=r"Expected `right_actions` of the environment echo to serve task .* found"):
        right_actions_of(env, env.task(0))
