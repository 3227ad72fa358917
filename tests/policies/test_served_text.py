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
from heedful.policies.servers import Client, Limits, ServerRefused
from heedful.types import Conversation, Ending, Group, Message, Reply, Span, Task, Trajectory, Turn

CHAT = "/v1/chat/completions"


class Writes:
    def __init__(self, text: str) -> None:
        self._text = text

    def text(self, messages: list[dict[str, str]]) -> str:
        return self._text


@contextmanager
def policy_of(text: str, sampling: Sampling | None = None, seed: int = 3) -> Iterator[tuple[TextPolicy, FakeServer]]:
    with fake_server(Writes(text)) as server:
        client = Client([server.url], Limits(connections=4, pause=0.01))
        yield TextPolicy(client, "policy", sampling or Sampling(tokens_per_turn=9), Tags(), seed), server
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


def test_a_thought_that_the_server_gives_apart_is_put_before_the_text() -> None:
    with policy_of("<answer>Up</answer>") as (policy, _):
        policy._dialect = Apart()  # type: ignore[assignment]
        (reply,) = policy.respond([asked("a")])
    assert reply.text == "<think>it is up</think><answer>Up</answer>"
    assert text_in(reply, reply.thought) == "it is up</think>"
    assert reply.closed


class Apart:
    """A dialect whose answers have a thought of their own."""

    def draw(self, *given: Any) -> Any:
        from heedful.policies.servers import OpenAIText

        return OpenAIText().draw(*given)

    def written(self, tree: Any) -> Any:
        from heedful.policies.servers import Written

        return Written(tree["choices"][0]["message"]["content"], "it is up", cut=False)


def test_a_conversation_that_fills_the_window_gets_an_empty_cut_reply() -> None:
    with policy_of("x") as (policy, server):
        server.faults.append(Fault("status", CHAT, 400, "This model's maximum context length is 1024 tokens."))
        (reply,) = policy.respond([asked("a")])
        assert (reply.ids, reply.cut) == ((), True)
        server.faults.append(Fault("status", CHAT, 400, "temperature must be at most 2"))
        with pytest.raises(ServerRefused, match="temperature must be at most 2"):
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
