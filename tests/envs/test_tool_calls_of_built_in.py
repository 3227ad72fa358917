"""SearchQA and Shop by calls of tools: the same episodes, rewards and faults as by plain answers."""

from __future__ import annotations

import json
import random

import pytest

from heedful.envs.common.base import SolvableEnvironment
from heedful.envs.common.tasks import evaluation_tasks
from heedful.envs.common.tools import in_form
from heedful.types import Ending
from heedful_envs.search_qa.environment import SearchQA
from heedful_envs.shop.environment import Shop

PAIRS = [
    pytest.param(SearchQA(), SearchQA(actions="tool_calls"), id="search_qa"),
    pytest.param(Shop(), Shop(actions="tool_calls"), id="shop"),
]


@pytest.mark.parametrize(("plain", "called"), PAIRS)
def test_a_solved_episode_earns_the_same_by_calls(plain: SolvableEnvironment, called: SolvableEnvironment) -> None:
    for task in evaluation_tasks(plain, "val", 5):
        replies = [reply for _, reply in plain.demonstrate(task, random.Random(task.seed))]
        first, second = plain.episode(), called.episode()
        first.start(task, 0)
        second.start(task, 0)
        for reply in replies:
            one, two = first.step(reply), second.step(in_form(called, reply))
            assert (one.rewards, one.ending, one.outcome, one.actions, one.state) == (
                two.rewards,
                two.ending,
                two.outcome,
                two.actions,
                two.state,
            )
        assert two.ending == Ending.SOLVED


@pytest.mark.parametrize(("plain", "called"), PAIRS)
def test_a_plain_answer_is_a_fault_where_calls_are_asked_for(
    plain: SolvableEnvironment, called: SolvableEnvironment
) -> None:
    task = evaluation_tasks(called, "val", 1)[0]
    episode = called.episode()
    episode.start(task, 0)
    step = episode.step("<think>x</think><answer>search[oak]</answer>")
    assert not step.valid
    assert "no tool call" in str(step.observation.text)
    wrong = json.dumps({"name": "search", "arguments": {"text": "oak"}})
    step = episode.step(f"<think>x</think><tool_call>{wrong}</tool_call>")
    assert not step.valid
    assert "is missing" in str(step.observation.text)
