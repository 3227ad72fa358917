"""Tasks that begin with help: another task, whose rest can be won, and which no evaluation can draw."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from heedful.envs.common.helped import Helped
from heedful.envs.common.tagged import in_tags
from heedful.envs.common.tasks import SPLITS, TaskStream, evaluation_tasks
from heedful.envs.countdown.environment import Countdown
from heedful.envs.frozen_lake.environment import FrozenLake
from heedful.envs.math.environment import MathProblems
from heedful.envs.sokoban.environment import Sokoban
from heedful.envs.toys.bandit import Bandit
from heedful.envs.toys.chain import UNREWARDED, Chain
from heedful.models.chat.replies import Tags
from heedful.policies.scripted import ScriptedPolicy
from heedful.protocols import AnswersFreely, Demonstrates, GradesAnswers, KnowsRight, ListsActions
from heedful.rollout import LockStep, Request, isolated
from heedful.types import HELPED, Ending, Observation, Step, Task, without_help

CHAIN = Chain(turns=3, least=1, most=8, unrewarded=0.25, imperfect=0.5, systematic=0.5)
MANY = [CHAIN, Sokoban(imperfect=0.5), FrozenLake(imperfect=0.5, actions_per_turn=1, turns=8)]
ONE = [Countdown(), MathProblems(turns=1)]


def tasks_of(env: Any, count: int = 24) -> list[Task]:
    return TaskStream(env, "train", 1).next(count)


def played(env: Any, task: Task, replies: Sequence[str]) -> tuple[Observation, list[Step]]:
    episode = env.episode()
    first = episode.start(task, 1)
    return first, [episode.step(reply) for reply in replies]


@pytest.mark.parametrize("env", MANY, ids=lambda env: env.name)
def test_after_any_help_the_rest_can_be_won(env: Any) -> None:
    helping = Helped(env)
    tasks = [task for task in tasks_of(env) if UNREWARDED not in task.tags and helping.way(task).length > 1]
    assert len(tasks) >= 8
    for task in tasks:
        way = helping.way(task)
        for turns in range(1, way.length):
            _, steps = played(helping, helping.given(task, turns), way.replies[turns:])
            assert [step.ending for step in steps] == [None] * (len(steps) - 1) + [Ending.SOLVED]


@pytest.mark.parametrize("env", MANY, ids=lambda env: env.name)
def test_help_is_a_first_prompt_and_no_turn_of_the_agent(env: Any) -> None:
    helping = Helped(env)
    task = next(task for task in tasks_of(env) if helping.way(task).length > 2)
    way = helping.way(task)
    _, steps = played(env, task, way.replies[:2])
    policy = ScriptedPolicy(lambda conversation: way.replies[2])
    request = Request(helping.episode, [helping.given(task, 2)], 2, env.turns)
    (group,) = LockStep()(policy, request)
    for trajectory in group.trajectories:
        first = trajectory.turns[0].reply
        assert steps[1].observation.opening in first.prompt.text
        assert first.text == way.replies[2]
        assert not any(reply in first.prompt.text for reply in way.replies)
        assert len(trajectory.turns) <= env.turns - 2
    assert group.task == Task(f"{task.id}+h2", task.seed, "train", (*task.tags, HELPED), task.environment)


@pytest.mark.parametrize("env", [*MANY, *ONE], ids=lambda env: env.name)
def test_no_held_out_task_has_help_and_each_shows_what_it_shows_without_it(env: Any) -> None:
    helping = Helped(env)
    for task in tasks_of(env, 4):
        played(helping, helping.given(task, 1), [])
    for split in SPLITS:
        tasks = evaluation_tasks(helping, split, 6)
        assert tasks == evaluation_tasks(env, split, 6)
        assert not any(HELPED in task.tags or "+h" in task.id for task in tasks)
        for task in tasks:
            replies = helping.way(task).replies
            assert played(helping, task, replies) == played(env, task, replies)


@pytest.mark.parametrize("env", ONE, ids=lambda env: env.name)
def test_a_solver_of_one_turn_gives_its_first_steps_and_never_the_last(env: Any) -> None:
    helping = Helped(env)
    for task in tasks_of(env):
        way = helping.way(task)
        for steps in range(1, way.length):
            first, _ = played(helping, helping.given(task, steps), [])
            bare, ends = played(helping, helping.given(task, steps), way.replies)
            assert ends[-1].ending is Ending.SOLVED
            line = first.text.removeprefix(played(env, task, [])[0].text)
            assert line == f"\nFirst steps of a solution: {' '.join(way.steps[:steps])}"
            assert way.steps[-1] not in line
            assert (bare.text, bare.opening) == (first.text, first.opening)
    brief = Helped(type(env)(turns=1, instructions="brief"))
    task = next(task for task in tasks_of(brief.env) if brief.way(task).length > 1)
    assert played(brief, brief.given(task, 1), [])[0].text.endswith(f"\nsteps {brief.way(task).steps[0]}")


def test_the_solver_finds_every_unpaid_task_and_no_other() -> None:
    helping = Helped(CHAIN)
    tasks = tasks_of(CHAIN, 60)
    unpaid = {task.id for task in tasks if helping.way(task).unpaid}
    assert unpaid == {task.id for task in tasks if UNREWARDED in task.tags}
    assert 5 < len(unpaid) < 30
    lake = Helped(FrozenLake(slip=0.5))
    assert not any(lake.way(task).unpaid for task in tasks_of(lake.env, 12))


def test_an_environment_that_cannot_help_is_refused_with_a_sentence() -> None:
    untold: Any = type("Untold", (FrozenLake,), {"noisy": False})  # as an adapter that does not know of the ice
    refused: tuple[tuple[Any, str], ...] = (
        (Bandit(), "whose solver needs one turn and does not tell its steps"),
        (Chain(), "whose solver needs one turn"),
        (FrozenLake(slip=0.2, actions_per_turn=1), "chance would begin the members of a group in different places"),
        (untold(slip=0.2, actions_per_turn=1), "chance would begin the members of a group in different places"),
    )
    for env, why in refused:
        with pytest.raises(ValueError, match=why):
            Helped(env).check(tasks_of(env, 4))
    for able in (*MANY, *ONE):
        Helped(able).check(tasks_of(able))


def test_after_help_the_right_action_is_that_of_the_next_turn() -> None:
    helping = Helped(CHAIN)
    task = tasks_of(CHAIN, 1)[0]
    answers = [str(link.states[-1]) for link in CHAIN.links(task.seed)]
    assert helping.right_actions(helping.given(task, 1)) == {answers[1]: 1.0}
    assert helping.right_actions(helping.given(task, 1), [[answers[1]]]) == {answers[2]: 1.0}
    assert helping.right_actions(task) == {answers[0]: 1.0}
    lake = Helped(FrozenLake())
    task = next(task for task in tasks_of(lake.env) if lake.way(task).length > 1)
    assert lake.answer_worth(task, lake.way(task).replies[0]) == 1.0
    assert lake.answer_worth(lake.given(task, 1), "") is None


def test_help_travels_to_worker_processes_and_through_tags() -> None:
    helping = Helped(CHAIN)
    task = tasks_of(CHAIN, 1)[0]
    given = helping.given(task, 2)
    here = played(helping, given, helping.way(task).replies[2:])
    again = pickle.loads(pickle.dumps(helping))
    assert again == helping
    with isolated(again, 1) as env:
        assert played(env, given, helping.way(task).replies[2:]) == here
    boxed = in_tags(helping, Tags(answer_open="\\boxed{", answer_close="}"))
    shown = boxed.episode().start(given, 0)
    assert shown.text == shown.opening
    assert "\\boxed{" in shown.text
    assert "<answer>" not in shown.text


def test_it_offers_what_the_environment_offers() -> None:
    for env in (*MANY, *ONE):
        for offer in (Demonstrates, ListsActions, AnswersFreely, KnowsRight, GradesAnswers):
            assert isinstance(Helped(env), offer) is isinstance(env, offer)
    assert without_help(tasks_of(CHAIN, 1)[0])[1] == 0
