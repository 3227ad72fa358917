"""Replies of a chat endpoint: text alone, with placeholders only while an episode runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fake_server import FakeServer, Fault, fake_server
from heedful.models.chat.replies import Tags
from heedful.policies.sampling import Sampling
from heedful.policies.served_text import TextPolicy, text_alone
from heedful.policies.servers import Client, Limits, ServerRefused, ServerUnreachable
from heedful.types import Conversation, Ending, Group, Message, Reply, Span, Task, Trajectory, Turn

CHAT = "/v1/chat/completions"


class Writes:
    def __init__(self, text: Any) -> None:
        self._text = text

    def text(self, messages: list[dict[str, str]]) -> Any:
        return self._text


@contextmanager
def policy_of(
    text: Any, sampling: Sampling | None = None, note: Any = print
) -> Iterator[tuple[TextPolicy, FakeServer]]:
    """A policy whose server answers with this text, or with this choice."""
    with fake_server(Writes(text)) as server:
        client = Client([server.url], Limits(connections=4, pause=0.01), note=note)
        yield TextPolicy(client, "policy", sampling or Sampling(tokens_per_turn=9), Tags(), 3), server
        client.close()


def asked(*texts: str, turn: int = 0, restarts: bool = False) -> Conversation:
    roles = ("user", "assistant")
    messages = (Message(roles[place % 2], text, (1,) if place % 2 else None) for place, text in enumerate(texts))
    return Conversation("task/0", tuple(messages), restarts, turn)


def text_in(reply: Reply, span: Span) -> str:
    return "".join(map(chr, reply.ids[span.start : span.end]))


def test_thought_and_answer_are_found_in_the_text() -> None:
    with policy_of("well <think>so</think> then <answer>Up</answer>!") as (policy, _):
        (reply,) = policy.respond([asked("go")])
    assert text_in(reply, reply.thought) == "so</think>"
    assert text_in(reply, reply.answer) == "<answer>Up</answer>"
    assert (reply.closed, reply.cut, reply.logprobs, reply.entropies) == (True, False, (), ())


def test_messages_and_only_fields_of_openai_are_sent_with_a_seed_of_the_turn() -> None:
    with policy_of("x") as (policy, server):
        policy.respond([asked("a", "b", "c", turn=1)])
        policy.respond([asked("a", "b", "c", turn=1)])
        policy.respond([asked("a")])
    first, again, other = server.bodies(CHAT)
    assert first["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert first == again
    assert first["seed"] != other["seed"]
    assert (first["max_tokens"], first["temperature"], first["model"]) == (9, 1.0, "policy")
    assert "top_k" not in first


def test_a_greedy_policy_asks_for_temperature_0() -> None:
    with policy_of("x", Sampling(greedy=True)) as (policy, server):
        policy.respond([asked("a")])
    assert server.bodies(CHAT)[0]["temperature"] == 0


def test_the_prompt_is_what_is_new_since_the_last_reply() -> None:
    with policy_of("x") as (policy, _):
        later = policy.respond([asked("a", "b", "c", turn=1)])[0].prompt
        window = policy.respond([asked("a", "b", "c", turn=1, restarts=True)])[0].prompt
    assert (later.text, later.restarts) == ("c\n", False)
    assert (window.text, window.restarts) == ("a\nb\nc\n", True)


APART = {"content": "<answer>Up</answer>"}
CONTENT = [{"type": "text", "text": "<answer>"}, {"type": "text", "text": "Up</answer>"}]


@pytest.mark.parametrize(
    "message",
    [
        APART | {"reasoning_content": "it is up"},
        APART | {"reasoning": "it is up", "reasoning_details": [{"type": "reasoning.text", "text": "it is up"}]},
        APART | {"thinking": "it is up"},
        APART | {"reasoning_details": [{"type": "reasoning.summary", "summary": "it is up"}]},
        {"content": [{"type": "thinking", "thinking": "it is up"}, *CONTENT]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "it is up"}]}, *CONTENT]},
        {"content": [{"type": "reasoning", "text": "it is up"}, *CONTENT]},
        {"content": CONTENT, "reasoning_content": "it is up"},
        {"content": ["<answer>Up", "</answer>"], "reasoning": "it is up"},
        APART | {"thinking_blocks": [{"type": "thinking", "thinking": "it is up"}]},
        APART | {"reasoning": {"content": "it is up"}},
        {"content": [{"text": "it is up", "thought": True}, *CONTENT]},
        {"content": "it is up</think><answer>Up</answer>"},
    ],
)
def test_a_thought_that_the_server_gives_apart_or_opens_is_put_before_the_text(message: dict[str, Any]) -> None:
    with policy_of({"message": message, "finish_reason": "stop"}) as (policy, _):
        (reply,) = policy.respond([asked("a")])
    assert reply.text == "<think>it is up</think><answer>Up</answer>"
    assert text_in(reply, reply.thought) == "it is up</think>"
    assert (reply.closed, reply.cut) == (True, False)


@pytest.mark.parametrize("reason", ["length", "MAX_TOKENS", "model_context_window_exceeded"])
@pytest.mark.parametrize(
    ("message", "text", "closed"),
    [
        ({"content": None, "reasoning_content": "it is"}, "<think>it is", False),
        ({"content": "", "reasoning": "it is"}, "<think>it is", False),
        ({"content": [{"type": "thinking", "thinking": "it is"}]}, "<think>it is", False),
        ({"content": "<think>it is"}, "<think>it is", False),
        ({"content": "<ans", "reasoning": "it is"}, "<think>it is</think><ans", True),
    ],
)
def test_a_thought_that_the_server_cut_stays_cut(message: Any, text: str, closed: bool, reason: str) -> None:
    with policy_of({"message": message, "finish_reason": reason}) as (policy, _):
        (reply,) = policy.respond([asked("a")])
    assert (reply.text, reply.closed, reply.cut) == (text, closed, True)
    assert text_in(reply, reply.thought) == text.removeprefix("<think>").removesuffix("<ans")


@pytest.mark.parametrize("reason", ["error", "content_filter", "abort", "sensitive", "SAFETY", "PROHIBITED_CONTENT"])
def test_a_reply_that_the_server_could_not_end_is_its_fault_and_no_empty_reply(reason: str) -> None:
    with policy_of({"message": {"content": ""}, "finish_reason": reason}) as (policy, server):
        with pytest.raises(ServerUnreachable, match=f"a whole reply, found one that ended with '{reason}'"):
            policy.respond([asked("a")])
        assert len(server.bodies(CHAT)) == 3


def test_a_refusal_of_the_model_is_what_it_said() -> None:
    with policy_of({"message": {"content": None, "refusal": "I cannot."}, "finish_reason": "stop"}) as (policy, _):
        assert policy.respond([asked("a")])[0].text == "I cannot."


@pytest.mark.parametrize(
    ("refused", "field", "instead"),
    [
        ("Unsupported parameter: 'presence_penalty' is not supported with this model.", "presence_penalty", {}),
        ("Argument not supported on this model: frequencyPenalty", "frequency_penalty", {}),
        ('Invalid JSON payload received. Unknown name "seed": Cannot find field.', "seed", {}),
        ("`top_p` must be > 0.0 and < 1.0", "top_p", {}),
        ("unknown field `seed`, expected one of `max_tokens`, `temperature`, `top_p`", "seed", {}),
        ("Unknown parameter 'seed'. Supported parameters: temperature, top_p.", "seed", {}),
        ("Presence penalty is not supported by this model", "presence_penalty", {}),
        ({"message": ["property seed should not exist"], "error": "Bad Request"}, "seed", {}),
        ({"error": {"message": "Unsupported parameter", "param": "seed"}}, "seed", {}),
        ({"detail": [{"type": "extra_forbidden", "loc": ["body", "top_p"], "msg": "Extra inputs"}]}, "top_p", {}),
        (
            "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
            "max_tokens",
            {"max_completion_tokens": 9},
        ),
        ("Unsupported value: 'temperature' does not support 1.0 with this model.", "temperature", {}),
    ],
)
def test_a_field_that_the_server_refuses_is_left_out_from_then_on_and_said(
    refused: Any, field: str, instead: dict[str, Any]
) -> None:
    told: list[str] = []
    with policy_of("Up", note=told.append) as (policy, server):
        server.refuses = {field: refused}
        assert [reply.text for reply in policy.respond([asked("a"), asked("b")])] == ["Up", "Up"]
        first, second, third = server.bodies(CHAT)
    assert second == {name: value for name, value in first.items() if name != field} | instead
    assert field not in third
    (sentence,) = told
    assert f"refuses `{field}`" in sentence


def test_several_refused_fields_are_left_out_one_after_the_other() -> None:
    with policy_of("Up") as (policy, server):
        server.refuses = dict.fromkeys(("presence_penalty", "frequency_penalty", "seed"), "Extra inputs")
        server.refuses = {name: f"Extra inputs are not permitted: {name}" for name in server.refuses}
        assert policy.respond([asked("a")])[0].text == "Up"


@pytest.mark.parametrize(
    ("sampling", "field", "refused"),
    [
        (Sampling(greedy=True), "temperature", "'temperature' does not support 0.0 with this model"),
        (Sampling(), "max_tokens", "max_tokens is too large: 64"),
        (Sampling(), "model", "model: not supported"),
    ],
)
def test_a_field_that_decides_the_reply_is_never_left_out(sampling: Sampling, field: str, refused: str) -> None:
    with policy_of("Up", sampling) as (policy, server):
        server.refuses = {field: refused}
        with pytest.raises(ServerRefused, match=refused):
            policy.respond([asked("a")])
        assert len(server.bodies(CHAT)) == 1


def test_a_refusal_of_penalties_means_both() -> None:
    with policy_of("Up") as (policy, server):
        server.refuses = dict.fromkeys(("presence_penalty", "frequency_penalty"), "Penalty is not enabled")
        assert policy.respond([asked("a")])[0].text == "Up"
        assert len(server.bodies(CHAT)) == 2


def test_a_conversation_that_fills_the_window_gets_an_empty_cut_reply() -> None:
    with policy_of("x") as (policy, server):
        server.faults.append(Fault("status", CHAT, 400, "This model's maximum context length is 1024 tokens."))
        (reply,) = policy.respond([asked("a")])
        assert (reply.ids, reply.cut) == ((), True)
        server.faults.append(Fault("status", CHAT, 400, "max_tokens must be at most 8"))
        with pytest.raises(ServerRefused, match="max_tokens must be at most 8"):
            policy.respond([asked("a")])


def test_an_empty_text_is_a_reply_without_characters() -> None:
    with policy_of("") as (policy, _):
        (reply,) = policy.respond([asked("a")])
    assert len(reply.ids) == 1  # its end: an episode goes on, and the environment reads an empty reply
    assert reply.text == ""


def test_usage_is_what_the_server_counted() -> None:
    with policy_of("one two three") as (policy, _):
        _, usage = policy.answer(asked("four words are here"))
    assert (usage.prompt, usage.sampled) == (4, 3)


def test_nothing_of_placeholders_is_left_in_episodes_of_text_alone() -> None:
    with policy_of("<think>so</think>") as (policy, _):
        (reply,) = policy.respond([asked("a")])
    task = Task("echo-1", 1, "val")
    turn = Turn(reply, {"goal": 1.0}, ("Up",), True, "moved", "s")
    (group,) = text_alone([Group(task, (Trajectory(task, 0, (turn,), Ending.SOLVED, 1.0),))])
    found = group.trajectories[0].turns[0]
    assert (found.reply.ids, found.reply.thought, found.reply.answer) == ((), Span(0, 0), Span(0, 0))
    assert (found.reply.text, found.reply.closed, found.rewards) == (reply.text, True, {"goal": 1.0})
