"""The actions that an environment calls right are those with which its tasks are solved."""

import random
from itertools import product

import pytest

from heedful.envs.common.contract import right_actions_of, rightness_of, worth_of
from heedful.envs.common.tagged import in_tags
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.countdown.environment import Countdown
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.chain import Chain
from heedful.envs.toys.echo import Echo
from heedful.models.chat.replies import Tags
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


def lake_of(text: str):
    """The task of a lake that looks so, and its environment."""
    env = FrozenLake(size=3, turns=3)
    seed = next(seed for seed in range(100_000) if env.start_state(seed).draw(env.start_state(seed).start) == text)
    return env, env.task(seed)


def test_a_whole_answer_on_a_lake_is_worth_the_way_that_it_saves() -> None:
    """P above G with one cell between: two moves down are the way, and an answer has two."""
    env, task = lake_of("P_O\n___\nG__")

    def worth(*actions: str) -> float:
        return worth_of(env)(task, f"<think>a</think><answer>{' || '.join(actions)}</answer>")

    assert worth("Down", "Down") == 1
    assert worth("Down") == worth("Down", "Left") == 0.5  # at the edge one stays in place
    assert worth("Down", "Up") == worth("Right", "Left") == worth("Right") == 0
    assert worth("Right", "Right") == 0  # a hole
    assert worth("Down", "Jump") == 0.5  # what is written up to the first fault
    assert worth_of(env)(task, "no answer") == 0
    english = in_tags(env, Tags("[T]", "[/T]", "[A]", "[/A]"))
    assert worth_of(english)(task, "[T]a[/T][A]Down[/A]") == 0.5


def test_actions_behind_the_goal_or_the_hole_do_not_count() -> None:
    env, task = lake_of("POG\n___\n___")
    reply = "<think>a</think><answer>Right || Down</answer>"
    assert worth_of(env)(task, reply) == 0
    _, near = lake_of("PO_\n_G_\n___")
    assert (
        worth_of(FrozenLake(size=3, turns=3, actions_per_turn=3))(
            near, "<think>a</think><answer>Down || Right || Right</answer>"
        )
        == 1
    )


@pytest.mark.parametrize("env", [FrozenLake(), Sokoban(size=5, turns=4)], ids=lambda env: env.name)
def test_a_shortest_answer_is_worth_1_and_a_wasted_half_less(env) -> None:
    for task in evaluation_tasks(env, "val", 5):
        episode = env.episode()
        episode.start(task, 0)
        plan = list(episode.plan(random.Random(0)))[: env.actions_per_turn]
        assert worth_of(env)(task, f"<answer>{' || '.join(plan)}</answer>") == 1
        assert worth_of(env)(task, f"<answer>{plan[0]}</answer>") == 0.5


def test_a_push_after_which_the_level_is_lost_is_worth_nothing() -> None:
    env, lost = Sokoban(size=5, turns=3, actions_per_turn=3), 0
    for task in evaluation_tasks(env, "val", 10):
        level = env.start_state(task.seed)
        for moves in product(range(4), repeat=3):
            state = level.player, level.boxes
            for move in moves:
                state = level.room.move(*state, move)
            if level.room.solve(*state, 60) is None:
                lost += 1
                assert worth_of(env)(task, f"<answer>{' || '.join(env.actions[move] for move in moves)}</answer>") == 0
    assert lost > 5


def test_answers_are_not_graded_where_chance_decides_or_the_environment_does_not_tell() -> None:
    task = evaluation_tasks(FrozenLake(slip=0.2), "val", 1)[0]
    assert worth_of(FrozenLake(slip=0.2))(task, "<answer>Up</answer>") is None
    assert worth_of(Chain()) is None
    with pytest.raises(ValueError, match=r"found 1\.5 where a number in \[0, 1\] was expected"):
        worth_of(Generous())(task, "")


class Generous(FrozenLake):
    def answer_worth(self, task, reply):
        return 1.5
