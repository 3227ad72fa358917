"""Harmony, the form of gpt-oss: its channels as thought, answer and call, appended to exactly what was sampled."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

pytest.importorskip("transformers", reason="rendering is tested with transformers tokenizers: install heedful[train]")

from heedful.envs.common.tagged import in_tags
from heedful.envs.toys.bandit import Bandit
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.rollout.player import Player, made
from heedful.types import Conversation, Ending, Message
from tests.models.chat.test_render import decode, encode, make_tokenizer
from tool_toy import TOOLS, Dictionary

HARMONY = (
    "<|start|>system<|message|>Channels: analysis, commentary, final.<|end|>"
    "{% if tools %}<|start|>developer<|message|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|end|>"
    "{% endif %}{% set last = namespace(name='') %}{% for m in messages %}"
    "{% if m.tool_calls %}{% set last.name = m.tool_calls[0].function.name %}<|start|>assistant to=functions."
    "{{ last.name }}<|channel|>commentary json<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"
    "{% elif m.role == 'assistant' %}{% if '<|channel|>' in m.content %}{{ raise_exception('tags') }}{% endif %}"
    "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% set last.name = '' %}"
    "{% elif m.role == 'tool' %}{% if not last.name %}{{ raise_exception('no call') }}{% endif %}"
    "<|start|>functions.{{ last.name }} to=assistant<|channel|>commentary<|message|>{{ m.content | tojson }}<|end|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
SPECIAL = ("<|channel|>", "<|message|>", "<|constrain|>", "<|return|>", "<|call|>")
FREE = Tags(force=False)
ANALYSIS, NEXT, FINAL = "<|channel|>analysis<|message|>", "<|end|><|start|>assistant", "<|channel|>final<|message|>"


@pytest.fixture
def tokenizer():
    return harmony_tokenizer()


def harmony_tokenizer():
    return make_tokenizer(HARMONY, special=("<|start|>", "<|end|>", *SPECIAL))


def parts(tokenizer, renderer: Renderer, text: str) -> tuple[str, str, str]:
    """Thought and answer of a sampled text, as the texts of their tokens, and the text of the reply."""
    ids = encode(tokenizer, text)
    reply = renderer.parse(renderer.start([Message("user", "P")]), ids, (0.0,) * len(ids))
    thought, answer = (decode(tokenizer, ids[span.start : span.end]) for span in (reply.thought, reply.answer))
    return thought, answer, reply.text


def test_the_channels_are_thought_and_answer_without_any_tag_being_typed(tokenizer):
    renderer = Renderer(tokenizer, FREE)
    assert renderer.tags == Tags(ANALYSIS, "<|end|>", FINAL, "<|return|>", force=False, of_model=False)
    final = f"{FINAL}Up<|return|>"
    assert parts(tokenizer, renderer, f"{ANALYSIS}hm{NEXT}{final}") == (
        "hm<|end|>",
        final,
        f"{ANALYSIS}hm{NEXT}{final}",
    )
    assert parts(tokenizer, renderer, final) == ("", final, final)
    assert parts(tokenizer, renderer, f"{ANALYSIS}hm") == ("hm", "", f"{ANALYSIS}hm")
    assert Renderer(tokenizer).start([Message("user", "P")]).text.endswith(f"<|start|>assistant{ANALYSIS}")


def test_tags_of_the_user_are_kept(tokenizer):
    own = Tags(ANALYSIS, "<|end|>", "<answer>", "</answer>")
    assert Renderer(tokenizer, own).tags == replace(own, of_model=False)


def test_a_message_ends_with_another_token_than_the_reply(tokenizer):
    back, call = encode(tokenizer, "<|return|><|call|>")
    for settings in ({}, {"stop_ids": [back]}, {"tools": TOOLS}):
        assert Renderer(tokenizer, **settings).stop_ids == {back, call}
    assert Renderer(tokenizer).end_of_turn_id == back


def test_three_turns_are_the_sampled_ids_and_the_text_between_them(tokenizer):
    renderer = Renderer(tokenizer, FREE, stop_ids=encode(tokenizer, "<|return|><|call|>"))
    sampled = [
        encode(tokenizer, f"{ANALYSIS}so{NEXT}{FINAL}Up<|return|>"),
        (
            *encode(tokenizer, FINAL),
            *(encode(tokenizer, letter)[0] for letter in "go<|return|>"[:2]),
            renderer.end_of_turn_id,
        ),
        encode(tokenizer, f"{ANALYSIS}cut"),
    ]
    messages = [Message("user", "P")]
    context = encode(tokenizer, HARMONY.partition("{%")[0] + "<|start|>user<|message|>P<|end|><|start|>assistant")
    for turn, ids in enumerate(sampled):
        assert renderer.context_ids(Conversation("k", tuple(messages))) == context
        messages += [Message("assistant", "", ids), Message("user", f"on {turn}")]
        inserted = "" if ids[-1] in renderer.stop_ids else "<|end|>"
        between = f"{inserted}<|start|>user<|message|>on {turn}<|end|><|start|>assistant"
        assert renderer.next_prompt(Conversation("k", tuple(messages))).text == between
        context = (*context, *ids, *encode(tokenizer, between))
    assert renderer.context_ids(Conversation("k", tuple(messages))) == context
    assert renderer.next_prompt(Conversation("k", tuple(messages), restarts=True)).ids == context


CHANNEL_FIRST = '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "oak"}<|call|>'
ROLE_FIRST = ' to=functions.finish<|channel|>commentary json<|message|>{"answer": "elm"}<|call|>'


def test_a_result_has_the_name_of_the_function_that_was_called(tokenizer):
    renderer = Renderer(tokenizer, FREE, tools=TOOLS)
    assert parts(tokenizer, renderer, f"{ANALYSIS}hm{NEXT}{CHANNEL_FIRST}")[:2] == ("hm<|end|>", CHANNEL_FIRST)
    for call, name in (
        (CHANNEL_FIRST, "search"),
        (ROLE_FIRST, "finish"),
        (ROLE_FIRST.replace("finish", "fetch"), "fetch"),
        (ROLE_FIRST.replace('"elm"', "elm"), "finish"),  # not JSON
    ):
        messages = (Message("user", "P"), Message("assistant", "", encode(tokenizer, call)), Message("tool", 'a "b"'))
        result = rf'<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>"a \"b\""<|end|>'
        assert renderer.next_prompt(Conversation("k", messages)).text == f"{result}<|start|>assistant"
    answered = (Message("user", "P"), Message("assistant", "", encode(tokenizer, f"{FINAL}Up<|return|>")))
    again = renderer.next_prompt(Conversation("k", (*answered, Message("user", "Call a tool."))))
    assert again.text == "<|start|>user<|message|>Call a tool.<|end|><|start|>assistant"


@pytest.mark.parametrize("env", [Bandit(), Dictionary(actions="tool_calls")], ids=["plain", "tools"])
def test_an_environment_is_solved_through_the_channels(tokenizer, env):
    renderer = Renderer(tokenizer, tools=TOOLS if env.name == "dictionary" else ())
    spoken = in_tags(env, renderer.tags)
    task = env.task(3)
    player = Player(made(spoken.episode), task, 0, env.turns)
    context: tuple[int, ...] = ()
    for _, reply in spoken.demonstrate(task, random.Random(0)):
        prompt, ids = renderer.next_prompt(player.conversation), renderer.as_sampled(reply)
        context = (*context, *prompt.ids, *ids)
        player.advance(renderer.parse(prompt, ids, (0.0,) * len(ids)))
    trajectory = player.trajectory(temperature=1.0, policy_version=0)
    assert trajectory.ending is Ending.SOLVED
    assert all(turn.valid and turn.reply.closed and len(turn.reply.answer) for turn in trajectory.turns)
    assert "<|channel|>" not in trajectory.turns[0].reply.prompt.text.rpartition("<|end|>")[0].partition("user")[2]
    text = decode(tokenizer, context)
    assert text.count("<|start|>assistant") == 2 * len(trajectory.turns)
    assert text.endswith("<|return|>" if env.name == "bandit" else "<|call|>")
