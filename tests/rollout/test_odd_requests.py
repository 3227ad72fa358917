"""Requests, episodes and policies out of order end in a sentence."""

import math

import pytest

from heedful.envs import ENVIRONMENTS
from heedful.policies import ScriptedPolicy
from heedful.rollout import Asynchronous, LockStep, Player, Request, collect_until_enough, isolated
from heedful.types import Span
from heedful_envs.search_qa.retrieval import Passage, SmallIndex

ECHO = ENVIRONMENTS["echo"]()
SILENT = ScriptedPolicy(lambda conversation: "")


class Unstartable:
    def start(self, task, member):
        raise KeyError("no board")

    def step(self, response):
        raise KeyError("no board")


def test_an_episode_that_goes_on_is_no_trajectory_and_an_ended_one_takes_no_reply() -> None:
    player = Player(ECHO.episode(), ECHO.task(0), 0, 1)
    with pytest.raises(RuntimeError, match="found one that goes on"):
        player.trajectory(1.0, 0)
    (reply,) = SILENT.respond([player.conversation])
    player.advance(reply)
    with pytest.raises(RuntimeError, match="found one that has ended"):
        player.advance(reply)


def test_an_episode_that_could_not_start_shows_why() -> None:
    player = Player(Unstartable(), ECHO.task(0), 0, 1)
    for show in (lambda: player.observation, lambda: player.conversation):
        with pytest.raises(RuntimeError, match="no board"):
            show()


def test_an_episode_in_a_process_begins_with_start() -> None:
    with isolated(ECHO, 1) as env, pytest.raises(RuntimeError, match="Call start first"):
        env.episode().step("x")


@pytest.mark.parametrize(("workers", "timeout"), [(1.5, 60.0), (None, 60.0), (math.nan, 60.0), (1, None), (1, "x")])
def test_workers_are_counted_and_waits_are_seconds(workers, timeout) -> None:
    with pytest.raises(ValueError, match=r"workers|env_timeout"), isolated(ECHO, workers, timeout):
        pass


def test_a_scripted_policy_answers_with_a_text() -> None:
    request = Request(ECHO.episode, [ECHO.task(0)], group_size=1, max_turns=1)
    for collect in (LockStep(), Asynchronous(2)):
        with pytest.raises(ValueError, match="Expected a text from the function of a ScriptedPolicy, found 3"):
            collect(ScriptedPolicy(lambda conversation: 3), request)


def test_a_task_that_a_request_has_twice_is_refused_where_replies_come_back_by_its_name() -> None:
    request = Request(ECHO.episode, [ECHO.task(0)] * 2, group_size=1, max_turns=1)
    with pytest.raises(ValueError, match="found one twice"):
        Asynchronous(2)(SILENT, request)


def test_a_request_has_as_many_episodes_as_memory_may_hold() -> None:
    with pytest.raises(ValueError, match="group_size must be at most"):
        Request(ECHO.episode, [ECHO.task(0)], group_size=10**18, max_turns=1)


@pytest.mark.parametrize("tasks", [math.nan, 1.5, -1, "x"])
def test_a_pool_has_a_number_of_tasks(tasks) -> None:
    with pytest.raises(ValueError, match="tasks must be"):
        collect_until_enough(lambda number, count: [], 2, 2, "outcome", tasks)


@pytest.mark.parametrize("most", [math.nan, 1.5, None])
def test_a_search_finds_a_whole_number_of_passages(most) -> None:
    with pytest.raises(ValueError, match="most must be a whole number"):
        SmallIndex([Passage("1", "", "a b"), Passage("2", "", "b")]).search("b", most)


def test_a_span_that_ends_before_it_begins_is_empty() -> None:
    assert len(Span(3, 1)) == 0
