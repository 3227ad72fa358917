"""Actions as calls of tools: the same answers, rewards and penalties as the plain grammar, and roles of results."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.envs.checking.check import Effort, check
from heedful.envs.common.actions import answer_text, format_reply
from heedful.envs.common.tools import call_text, in_form
from heedful.envs.common.wire import observation_tree, read_observation
from heedful.models.chat.calls import Fault
from heedful.types import Observation
from tool_toy import TOOLS, Dictionary


@pytest.mark.parametrize("actions", ["plain", "tool_calls"])
def test_an_environment_with_tools_keeps_the_contract(actions):
    report = check(Dictionary(actions=actions), Effort(seeds=20, episodes=4), skip=["pickle"])
    assert report.ok, str(report)


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (call("search", query="oak"), "search[oak]"),
        (f"<think>hm</think>{call('finish', answer='a ] b')}", "finish[a ] b]"),
        (f"<think>{call('search', query='x')}</think>{call('search', query='y')}", "search[y]"),
        (f"hm</think>{call('search', query='y')}", "search[y]"),
        (f"I look.\n{call('search', query='y')}{call('search', query='z')}", "search[y]"),
        (call("search", query="</think><think></answer>"), "search[</think><think></answer>]"),
    ],
)
def test_a_call_is_read_as_the_plain_answer_it_stands_for(reply, answer):
    assert answer_text(reply, TOOLS) == answer


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("<think>hm " + call("search", query="oak"), "open thought"),
        ("<think>hm</think>", "no call"),
        (format_reply(["search[oak]"], "hm"), "no call"),
        (call("search", query=" "), "empty argument"),
        (call("fetch", query="oak"), "unknown tool"),
    ],
)
def test_what_is_wrong_with_a_call_is_a_fault(reply, kind):
    fault = answer_text(reply, TOOLS)
    assert isinstance(fault, Fault)
    assert fault.kind == kind


@given(st.text(), st.sampled_from(["search", "finish"]))
def test_a_plain_answer_comes_back_from_its_call(argument, name):
    written = call_text(f"{name}[{argument}]", TOOLS)
    found = answer_text(written, TOOLS)
    if argument.strip():
        assert found == f"{name}[{argument}]"
    else:
        assert isinstance(found, Fault)


def test_scripted_players_speak_in_the_form_that_the_environment_wants():
    plain = format_reply(["search[oak]"], "so")
    assert in_form(Dictionary(), plain) == plain
    asked = Dictionary(actions="tool_calls")
    assert in_form(asked, plain) == "<think>so</think>" + call_text("search[oak]", TOOLS)
    assert in_form(asked, "<think>so") == "<think>so"
    assert in_form(asked, format_reply(["look at oak"], "")) == format_reply(["look at oak"], "")


@pytest.mark.parametrize(
    ("reply", "paid"), [("<think>hm", -0.1), (call("fetch", query="a"), -0.1), ("search[a]", -0.1)]
)
def test_a_reply_without_a_readable_call_costs_the_format_penalty(reply, paid):
    env = Dictionary(actions="tool_calls")
    episode = env.episode()
    episode.start(env.task(0), 0)
    step = episode.step(reply)
    assert (step.valid, dict(step.rewards)) == (False, {"format": -0.1})
    assert step.observation.text.startswith("Your last reply was invalid: ")


def test_the_result_of_a_call_has_the_role_tool_and_any_other_reply_is_answered_by_the_user():
    env = Dictionary(actions="tool_calls")
    episode = env.episode()
    assert episode.start(env.task(0), 0).role == "user"
    assert episode.step(call("search", query="oak")).observation.role == "tool"
    assert episode.step("no call").observation.role == "user"
    plain = Dictionary().episode()
    plain.start(env.task(0), 0)
    assert plain.step(call("search", query="oak")).observation.role == "user"


def test_the_role_of_an_observation_travels():
    for observation in (Observation("a"), Observation("a", "b", "tool")):
        assert read_observation(json.loads(json.dumps(observation_tree(observation)))) == observation


def test_the_rules_tell_the_form_that_is_read():
    plain, called = Dictionary().full_rules(), Dictionary(actions="tool_calls").full_rules()
    assert "<answer>" in plain
    assert "<answer>" not in called
    assert "call search or finish" in called
