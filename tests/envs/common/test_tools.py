"""Actions as calls of tools: the same answers, rewards and penalties as the plain grammar, and roles of results."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.envs.checking.check import QUICK, check
from heedful.envs.common.actions import Fault, answer_text, format_reply
from heedful.envs.common.answers import answer_fault_line, free_text_rules, read_answer
from heedful.envs.common.base import BaseEpisode, Played
from heedful.envs.common.demonstrations import played_through
from heedful.envs.common.tasks import task_of
from heedful.envs.common.tools import ToolEnvironment, call_text, in_form, text_tool
from heedful.envs.common.wire import observation_tree, read_observation
from heedful.types import Ending, Observation, Task, Tool

TOOLS = (
    text_tool("search", "Look a word up.", "query", "The word.", "search[{}]"),
    text_tool("finish", "Give the answer.", "answer", "The answer.", "finish[{}]"),
)
WORDS = ("oak", "elm", "ash", "fir", "yew", "bay", "fig", "gum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionary(ToolEnvironment):
    """A toy with two tools: look one word up, and hand in the word that was found."""

    name: ClassVar[str] = "dictionary"
    declared: ClassVar[tuple[Tool, ...]] = TOOLS

    turns: int = 3
    """Replies."""

    def pair(self, seed: int) -> tuple[str, str]:
        rng = random.Random(f"dictionary:{seed}")
        return f"{rng.choice(WORDS)}{rng.randrange(100)}", f"{rng.choice(WORDS)}{rng.randrange(10)}"

    def task(self, seed: int) -> Task:
        return task_of(self.name, " ".join(self.pair(seed)), seed)

    def episode(self) -> DictionaryEpisode:
        return DictionaryEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        return f"{rng.choice(('search', 'finish'))}[{rng.choice(WORDS)}{rng.randrange(10)}]"

    def blind_answers(self, tasks: list[Task]) -> list[str]:
        return [f"finish[{word}1]" for word in WORDS]

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        key, value = self.pair(task.seed)

        def reply(episode: DictionaryEpisode) -> str:
            return format_reply([f"search[{key}]" if not episode.turn else f"finish[{value}]"], "hm")

        return played_through(self.episode(), task, reply)

    def full_rules(self) -> str:
        return free_text_rules("Translate the word.", "search[oak]", self.turns, self.tools)


class DictionaryEpisode(BaseEpisode[Dictionary]):
    """One episode of `Dictionary`."""

    __slots__ = ("key", "value")

    def begin(self, task: Task, member: int) -> str:
        self.key, self.value = self.env.pair(task.seed)
        return f"{self.limits()}\nTranslate {self.key}"

    def play(self, response: str) -> Played:
        read = read_answer(response, 80, self.env.tools)
        verb, _, rest = read.text.partition("[")
        text = rest.removesuffix("]")
        fault = read.fault or ("" if verb.lower() in ("search", "finish") else "neither search nor finish")
        solved = not fault and verb.lower() == "finish" and text == self.value
        over = solved or not self.turns_left or (not fault and verb.lower() == "finish")
        found = self.value if verb.lower() == "search" and text == self.key else "nothing"
        return Played(
            fault=fault,
            rewards={"solved": 1.0} if solved else {},
            ending=(Ending.SOLVED if solved else Ending.FAILED if self.turns_left else Ending.OUT_OF_TURNS)
            if over
            else None,
            progress=float(solved),
            actions=(verb.lower(),) if not fault else (),
            note=answer_fault_line(read, self.env.brief),
            shown=f"{self.limits()}\nTranslate {self.key}\nfound {found}",
            state=f"{self.turn} {verb.lower() if not fault else ''}",
            effect=fault,
        )


@pytest.mark.parametrize("actions", ["plain", "tool_calls"])
def test_an_environment_with_tools_keeps_the_contract(actions):
    report = check(Dictionary(actions=actions), replace(QUICK, processes=0), skip=["pickle"])
    assert report.ok, str(report)
    finding = next(each for each in report.findings if each.rule == "tools")
    assert "earn the same by calls and by plain answers" in str(finding)


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


@pytest.mark.parametrize(("reply", "paid"), [("<think>hm", -0.1), (call("fetch", query="a"), -0.1), ("search[a]", -0.1)])
def test_a_reply_without_a_readable_call_costs_the_format_penalty(reply, paid):
    env = Dictionary(actions="tool_calls")
    episode = env.episode()
    episode.start(env.task(0), 0)
    step = episode.step(reply)
    assert (step.valid, dict(step.rewards)) == (False, {"format": paid})
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


def test_an_unknown_form_of_actions_is_refused():
    with pytest.raises(ValueError, match="actions must be 'plain' or 'tool_calls'"):
        Dictionary(actions="json")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must hold {} once"):
        text_tool("search", "Search.", "query", "Words.", "search")
