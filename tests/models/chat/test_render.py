"""Rendering: append-only prompts under several chat templates, spans over sampled ids, and every refusal."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("transformers", reason="rendering is tested with transformers tokenizers: install heedful[train]")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from heedful.envs.common.actions import format_reply, read_reply
from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.types import Conversation, Message, Prompt, Span

LINES = [
    "you are the player on a frozen lake, find the gift",
    "P 1 2 G 3 0 plan Left Up Left go down then right",
    "<think>the goal is up</think><answer>Up || Left</answer>",
] * 3
ORDINARY = ("<think>", "</think>", "<answer>", "</answer>")

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEADERS = (
    "<|begin|>{% for m in messages %}<|head|>{{ m.role }}<|/head|>\n\n{{ m.content | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant<|/head|>\n\n{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful player.<|im_end|>\n{% endif %}" + CHATML
)
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and '</think>' in m.content %}{{ m.content.split('</think>')[-1] | trim }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
OPENS_ITSELF = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
COMMAND_A = (
    "{# <|START_THINKING|> #}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}<|START_RESPONSE|>{% endif %}{{ m.content }}"
    "{% if m.role == 'assistant' %}<|END_RESPONSE|>{% endif %}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<|START_RESPONSE|>{% endif %}"
)
FIRST = (Message("system", "Play."), Message("user", "P 1 2 G 3 0"))


def make_tokenizer(
    template: str | None, ordinary: tuple[str, ...] = ORDINARY, special: tuple[str, ...] = ()
) -> PreTrainedTokenizerFast:
    names = ["<|im_start|>", "<|im_end|>", "<|begin|>", "<|head|>", "<|/head|>", "<|eot|>", "<|end|>", *special]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(LINES, trainer)
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in ordinary])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>")
    tokenizer.chat_template = template
    return tokenizer


def make_metaspace_tokenizer() -> PreTrainedTokenizerFast:
    """Its decoder strips the space of the first piece, so single pieces do not join to the text."""
    core = Tokenizer(models.BPE(byte_fallback=False, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    core.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<unk>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=[chr(code) for code in range(33, 127)] + ["\n", "▁"],
        show_progress=False,
    )
    core.train_from_iterator(LINES, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", unk_token="<unk>")
    tokenizer.chat_template = CHATML
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """ChatML, with tokens for the tags."""
    return make_tokenizer(CHATML)


@pytest.fixture(scope="module")
def renderer(tokenizer: PreTrainedTokenizerFast) -> Renderer:
    return Renderer(tokenizer)


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)


def decode(tokenizer: PreTrainedTokenizerFast, ids: tuple[int, ...]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def whole(tokenizer: PreTrainedTokenizerFast, messages: tuple[Message, ...]) -> str:
    chat = [{"role": message.role, "content": message.content} for message in messages]
    return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))


def read(renderer: Renderer, ids: tuple[int, ...]):
    return renderer.parse(Prompt("", ()), ids, [-0.5] * len(ids), [0.25] * len(ids))


def play(renderer: Renderer, replies: list[str], ended: bool = True) -> tuple[Message, ...]:
    """A conversation in which the policy sampled these texts (tags included)."""
    messages = FIRST
    for number, text in enumerate(replies):
        ids = renderer.as_sampled(text) if ended else renderer.as_sampled(text)[:-1]
        messages += (Message("assistant", text, ids), Message("user", f"P {number} 0 G 3 0"))
    return messages


REPLIES = ["<think>the goal is up</think><answer>Up</answer>", "<think>go</think><answer>Left || Up</answer>"]


@pytest.mark.parametrize("template", [CHATML, HEADERS, DEFAULT_SYSTEM], ids=["chatml", "headers", "default_system"])
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("ordinary", [ORDINARY, ()], ids=["tag_tokens", "spelled_tags"])
def test_appending_gives_the_ids_of_the_whole_conversation(template, ended, ordinary):
    tokenizer = make_tokenizer(template, ordinary)
    renderer = Renderer(tokenizer, Tags(force=False))
    messages = play(renderer, REPLIES, ended)
    assert renderer.context_ids(Conversation("k", messages)) == encode(tokenizer, whole(tokenizer, messages))


def test_a_lone_surrogate_that_an_environment_shows_is_read_as_its_escape(tokenizer, renderer):
    """No tokenizer takes one. A run would end in a TypeError."""
    shown, escaped = ([Message("user", text)] for text in ("a \ud800 b", "a \\ud800 b"))
    assert renderer.start(shown).ids == renderer.start(escaped).ids
    assert renderer.glue(shown, ended=True).ids == renderer.glue(escaped, ended=True).ids


def test_with_a_forced_tag_only_the_opening_is_added_to_the_whole_conversation(tokenizer, renderer):
    messages = play(renderer, REPLIES)
    expected = encode(tokenizer, whole(tokenizer, messages) + "<think>")
    assert renderer.context_ids(Conversation("k", messages)) == expected
    assert renderer.start(FIRST).text == whole(tokenizer, FIRST) + "<think>"


@pytest.mark.parametrize("ended", [True, False])
def test_a_conversation_that_restarts_is_one_prompt_of_start_sampled_ids_and_glue(tokenizer, renderer, ended):
    messages = play(renderer, REPLIES, ended)
    prompt = renderer.next_prompt(Conversation("k", messages, restarts=True))
    assert prompt.restarts
    assert prompt.ids == renderer.context_ids(Conversation("k", messages))
    assert prompt.text == decode(tokenizer, prompt.ids)
    glue = renderer.glue([messages[-1]], ended)
    # The newest observation begins behind the end of the last reply, sampled or not.
    assert prompt.ids[prompt.history :] == glue.ids[0 if ended else 1 :]
    assert prompt.ids[prompt.history - 1] == renderer.end_of_turn_id


def test_a_window_of_sampled_ids_that_no_text_would_give_back_keeps_them(tokenizer, renderer):
    spelled = tuple(token for letter in "Left" for token in encode(tokenizer, letter))
    assert spelled != encode(tokenizer, "Left")
    messages = (FIRST[-1], Message("assistant", "Left", (*spelled, renderer.end_of_turn_id)), FIRST[-1])
    ids = renderer.next_prompt(Conversation("k", messages, restarts=True)).ids
    start = renderer.start(messages[:1]).ids
    assert ids[: len(start) + len(spelled)] == start + spelled


def test_a_restart_without_sampled_replies_is_the_start_and_all_of_it_is_new(renderer):
    prompt = renderer.next_prompt(Conversation("k", FIRST, restarts=True))
    start = renderer.start(FIRST)
    assert (prompt.text, prompt.ids, prompt.restarts, prompt.history) == (start.text, start.ids, True, 0)
    assert renderer.next_prompt(Conversation("k", FIRST)) == start


def test_context_ids_are_the_prompts_and_replies_in_order(renderer):
    ids: tuple[int, ...] = ()
    messages = play(renderer, REPLIES)
    for end in (2, 4, 6):
        conversation = Conversation("k", messages[:end])
        ids += renderer.next_prompt(conversation).ids
        assert renderer.context_ids(conversation) == ids
        ids += messages[end].ids if end < 6 else ()


def test_old_thoughts_stay_even_where_the_template_strips_them():
    tokenizer = make_tokenizer(FORGETFUL)
    renderer = Renderer(tokenizer)
    messages = play(renderer, REPLIES)
    assert "the goal is up" not in whole(tokenizer, messages)
    text = decode(tokenizer, renderer.context_ids(Conversation("k", messages)))
    assert "<think>the goal is up</think><answer>Up</answer><|im_end|>\n<|im_start|>user\nP 0 0" in text


def test_default_system_prompt_is_written_once():
    tokenizer = make_tokenizer(DEFAULT_SYSTEM)
    renderer = Renderer(tokenizer)
    messages = play(renderer, REPLIES)[1:]
    text = decode(tokenizer, renderer.context_ids(Conversation("k", messages)))
    assert text.count("You are a helpful player.") == 1


def test_glue_begins_with_the_end_of_turn_only_if_the_sampler_did_not_emit_it(tokenizer, renderer):
    after = "\n<|im_start|>user\nP 1 1<|im_end|>\n<|im_start|>assistant\n<think>"
    observation = [Message("user", "P 1 1")]
    assert renderer.glue(observation, ended=True) == Prompt(after, encode(tokenizer, after))
    assert renderer.glue(observation, ended=False) == Prompt(
        "<|im_end|>" + after, encode(tokenizer, "<|im_end|>" + after)
    )
    assert decode(tokenizer, (renderer.end_of_turn_id,)) == "<|im_end|>"


def test_another_stop_id_stands_for_the_end_of_turn(tokenizer):
    end = encode(tokenizer, "<|end|>")[0]
    renderer = Renderer(tokenizer, stop_ids=[end])
    assert renderer.stop_ids == {end, renderer.end_of_turn_id}
    sampled = (*encode(tokenizer, "go</think>"), end)
    conversation = Conversation("k", (*FIRST, Message("assistant", "<think>go</think>", sampled), Message("user", "P")))
    assert renderer.next_prompt(conversation) == renderer.glue([Message("user", "P")], ended=True)
    assert not read(renderer, sampled).cut


TURNS = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}<|assistant|>{{ '\\n' }}"
TWO_ENDS = CHATML.replace("<|im_end|>", "{% if m.role == 'assistant' %}<|eot|>{% endif %}<|im_end|>")


def ended_by(renderer: Renderer, token: int | None) -> Prompt:
    """The prompt after a reply that the sampler ended with this id."""
    ids = (*renderer.as_sampled("<think>go</think>")[:-1], *([] if token is None else [token]))
    messages = (FIRST[1], Message("assistant", "", ids), Message("user", "P"))
    return renderer.next_prompt(Conversation("k", messages))


def test_a_header_that_ends_the_turn_is_written_after_every_other_stop_id():
    tokenizer = make_tokenizer(TURNS, special=("<|user|>", "<|assistant|>"))
    end, user = encode(tokenizer, "<|end|><|user|>")
    renderer = Renderer(tokenizer, stop_ids=[end, user])
    after = "\nP<|assistant|>\n<think>"
    assert renderer.end_of_turn_id == user
    assert ended_by(renderer, user).text == after
    assert ended_by(renderer, end).text == "<|user|>" + after
    assert ended_by(renderer, None).text == "<|user|>" + after
    assert ended_by(renderer, end).ids == (user, *ended_by(renderer, user).ids)


def test_a_stop_id_that_the_template_writes_after_the_end_of_turn_is_not_written_twice():
    tokenizer = make_tokenizer(TWO_ENDS)
    first, second = encode(tokenizer, "<|eot|><|im_end|>")
    renderer = Renderer(tokenizer, stop_ids=[second])
    after = "\n<|im_start|>user\nP<|im_end|>\n<|im_start|>assistant\n<think>"
    assert renderer.end_of_turn_id == first
    assert ended_by(renderer, first).text == "<|im_end|>" + after
    assert ended_by(renderer, second).text == after
    assert ended_by(renderer, None).text == "<|eot|><|im_end|>" + after
    assert ended_by(renderer, second).ids == ended_by(renderer, None).ids[2:]


def test_a_default_system_message_does_not_make_the_end_of_turn_a_header():
    tokenizer = make_tokenizer(DEFAULT_SYSTEM)
    end = encode(tokenizer, "<|end|>")[0]
    renderer = Renderer(tokenizer, stop_ids=[end])
    assert ended_by(renderer, end).text.startswith("\n<|im_start|>user")


def test_white_space_before_the_end_of_a_reply_stays_where_the_template_strips_it():
    tokenizer = make_tokenizer(HEADERS)
    renderer = Renderer(tokenizer, Tags(force=False))
    reply = renderer.as_sampled("Up \n")
    messages = (*FIRST, Message("assistant", "Up \n", reply), Message("user", " P\n"))
    ids = renderer.context_ids(Conversation("k", messages))
    assert whole(tokenizer, messages).count("Up<|eot|>") == 1
    text = decode(tokenizer, ids)
    assert text.endswith("Up \n<|eot|><|head|>user<|/head|>\n\nP<|eot|><|head|>assistant<|/head|>\n\n")


def test_a_reply_without_any_id_is_followed_by_the_end_of_turn(renderer):
    conversation = Conversation("k", (*FIRST, Message("assistant", "<think>", ()), Message("user", "P")))
    assert renderer.next_prompt(conversation).ids[0] == renderer.end_of_turn_id


def test_an_end_of_turn_token_that_swallows_whitespace_leaves_none_behind():
    tokenizer = make_tokenizer(CHATML)
    tokenizer.backend_tokenizer.add_special_tokens([AddedToken("<|im_end|>", rstrip=True, special=True)])
    swallowed = encode(tokenizer, "<|im_end|>\n<|im_start|>")
    assert len(swallowed) == 2, "the tokenizer of this test must swallow the newline"
    renderer = Renderer(tokenizer)
    assert renderer.glue([Message("user", "P")], ended=True).ids[0] == swallowed[1]


def test_assistant_messages_without_ids_are_rendered_by_the_template():
    tokenizer = make_tokenizer(FORGETFUL)
    renderer = Renderer(tokenizer)
    messages = (*FIRST, Message("assistant", "<think>so</think>Up"), Message("user", "P 2 2"))
    assert renderer.next_prompt(Conversation("k", messages)).text == whole(tokenizer, messages) + "<think>"


def test_equal_prompts_are_rendered_once(monkeypatch):
    tokenizer = make_tokenizer(CHATML)
    renderer = Renderer(tokenizer)
    first = (renderer.start(FIRST), renderer.glue([Message("user", "P")], True))
    monkeypatch.setattr(tokenizer, "apply_chat_template", None)
    assert (renderer.start(FIRST), renderer.glue([Message("user", "P")], True)) == first


THOUGHT, ANSWER, NEITHER = "thought", "answer", ""


@pytest.mark.parametrize(
    ("parts", "ended"),
    [
        ([("the goal is up</think>", THOUGHT), ("<answer>Up</answer>", ANSWER)], True),
        (
            [("go</think>", THOUGHT), ("\nso: ", NEITHER), ("<answer>Up</answer>", ANSWER), (" and left", NEITHER)],
            False,
        ),
        ([("go</think>", THOUGHT), ("<answer>Up", ANSWER)], True),
        ([("<answer>Up</answer> go</think>", THOUGHT), (" Up", NEITHER)], True),
        ([("go 🧊🎁 now</think>", THOUGHT), ("<answer>Up 🧊</answer>", ANSWER)], False),
    ],
    ids=["both", "text_around", "answer_not_closed", "no_answer", "split_characters"],
)
def test_the_tokens_of_thought_and_answer_are_found(tokenizer, renderer, parts, ended):
    ids, spans = (), {}
    for text, of in parts:
        spans[of] = Span(len(ids), len(ids) + len(encode(tokenizer, text)))
        ids += encode(tokenizer, text)
    reply = read(renderer, (*ids, renderer.end_of_turn_id) if ended else ids)
    end = spans[THOUGHT].end
    assert (reply.thought, reply.answer) == (spans[THOUGHT], spans.get(ANSWER, Span(end, end)))
    assert (reply.closed, reply.cut) == (True, not ended)
    assert reply.text == "<think>" + "".join(text for text, _ in parts)
    assert (reply.logprobs, reply.entropies) == ((-0.5,) * len(reply.ids), (0.25,) * len(reply.ids))


def test_tags_spelled_with_many_tokens_are_found():
    tokenizer = make_tokenizer(CHATML, ordinary=())
    renderer = Renderer(tokenizer)
    # One id per byte: the spelling least like the one the tokenizer would choose.
    spelled = tuple(encode(tokenizer, letter)[0] for letter in "up</think><answer>Up</answer>")
    reply = read(renderer, (*spelled, renderer.end_of_turn_id))
    assert reply.text == "<think>up</think><answer>Up</answer>"
    assert reply.thought == Span(0, len("up</think>"))
    assert reply.answer == Span(len("up</think>"), len(spelled))


def test_a_tag_spelled_before_the_tag_token_closes_the_thought(tokenizer, renderer):
    spelled = tuple(encode(tokenizer, letter)[0] for letter in "up</think>")
    assert read(renderer, spelled + encode(tokenizer, " more</think>")).thought == Span(0, len(spelled))


def test_a_token_that_holds_the_end_of_the_tag_belongs_to_the_thought_alone():
    tokenizer = make_tokenizer(CHATML, ordinary=("><",))
    renderer = Renderer(tokenizer)
    ids = encode(tokenizer, "go</think><answer>Up</answer>")
    straddling = encode(tokenizer, "><")[0]
    at = ids.index(straddling)
    reply = read(renderer, ids)
    assert reply.thought == Span(0, at + 1)
    assert reply.answer == Span(at + 1, len(ids))


def test_a_reply_cut_within_a_character_is_read(tokenizer, renderer):
    ids = encode(tokenizer, "go</think><answer>🧊")[:-1]
    reply = read(renderer, ids)
    assert reply.text == "<think>go</think><answer>�"
    assert reply.answer == Span(len(encode(tokenizer, "go</think>")), len(ids))


def test_a_decoder_that_strips_spaces_gives_the_same_spans():
    tokenizer = make_metaspace_tokenizer()
    renderer = Renderer(tokenizer)
    ids = encode(tokenizer, "the goal is up</think> <answer> Up || Left </answer>")
    reply = read(renderer, ids)
    assert decode(tokenizer, ids[: reply.thought.end]).endswith("</think>")
    assert not decode(tokenizer, ids[: reply.thought.end - 1]).endswith("</think>")
    assert "<" not in decode(tokenizer, ids[reply.thought.end : reply.answer.start])
    assert decode(tokenizer, ids[reply.answer.start : reply.answer.end]).strip() == "<answer> Up || Left </answer>"


def test_an_unclosed_thought_runs_through_the_end_of_turn_or_up_to_the_cut(tokenizer, renderer):
    ids = encode(tokenizer, "the goal is <answer>Up</answer>")
    cut = read(renderer, ids)
    assert (cut.thought, cut.answer, cut.closed, cut.cut) == (Span(0, len(ids)), Span(len(ids), len(ids)), False, True)
    ended = read(renderer, (*ids, renderer.end_of_turn_id))
    assert ended.thought == Span(0, len(ids) + 1)
    assert len(ended.answer) == 0
    assert (ended.closed, ended.cut) == (False, False)
    assert ended.text == cut.text


def test_a_reply_of_no_ids_or_of_the_end_alone_is_read(renderer):
    empty = read(renderer, ())
    assert (empty.text, empty.thought, empty.closed, empty.cut) == ("<think>", Span(0, 0), False, True)
    silent = read(renderer, (renderer.end_of_turn_id,))
    assert (silent.text, silent.thought, silent.closed, silent.cut) == ("<think>", Span(0, 1), False, False)


def test_without_force_the_thought_begins_after_the_sampled_tag():
    tokenizer = make_tokenizer(CHATML, ordinary=())
    renderer = Renderer(tokenizer, Tags(force=False))
    opening, thought = encode(tokenizer, "<think>"), encode(tokenizer, "go</think>")
    reply = read(renderer, opening + thought)
    assert len(opening) > 1
    assert renderer.opening == ""
    assert not renderer.start(FIRST).text.endswith("<think>")
    assert reply.text == "<think>go</think>"
    assert reply.thought == Span(len(opening), len(opening + thought))


def test_without_force_and_without_a_tag_the_thought_is_empty(tokenizer):
    renderer = Renderer(tokenizer, Tags(force=False))
    before, answer = encode(tokenizer, "go</think> "), encode(tokenizer, "<answer>Up</answer>")
    reply = read(renderer, (*before, *answer, renderer.end_of_turn_id))
    assert (reply.thought, reply.closed) == (Span(0, 0), False)
    assert reply.answer == Span(len(before), len(before + answer))


@pytest.mark.parametrize("force", [True, False])
def test_a_tag_that_the_template_writes_is_not_written_twice(force):
    tokenizer = make_tokenizer(OPENS_ITSELF)
    renderer = Renderer(tokenizer, Tags(force=force))
    assert renderer.opening == "<think>\n"
    assert renderer.start(FIRST).text == whole(tokenizer, FIRST)
    ids = renderer.as_sampled("<think>\ngo</think>Up")
    assert read(renderer, ids).text == "<think>\ngo</think>Up"
    assert read(renderer, ids).thought.start == 0


def test_a_demonstration_reads_back_as_written(renderer):
    for text in REPLIES:
        reply = read(renderer, renderer.as_sampled(text))
        assert (reply.text, reply.cut) == (text, False)
    with pytest.raises(ValueError, match="begins with '<think>'"):
        renderer.as_sampled("no thought")


def slow_spans(renderer: Renderer, tokenizer: PreTrainedTokenizerFast, ids: tuple[int, ...]) -> tuple[Span, Span]:
    """The definition, token by token: what each prefix of the ids decodes to."""
    cut = not ids or ids[-1] not in renderer.stop_ids
    written = ids if cut else ids[:-1]
    prefixes = [decode(tokenizer, written[:length]) for length in range(len(written) + 1)]
    text = prefixes[-1]

    def count(characters: int) -> int:
        return next(n for n, prefix in enumerate(prefixes) if prefix[:characters] == text[:characters])

    begin = 0
    after = 0
    if not renderer.opening:
        if "<think>" not in text:
            begin = -1
        else:
            after = text.index("<think>") + len("<think>")
            begin = count(after)
    if begin >= 0 and text.find("</think>", after) < 0:
        return Span(begin, len(ids)), Span(len(ids), len(ids))
    end = 0
    if begin >= 0:
        after = text.index("</think>", after) + len("</think>")
        end = count(after)
    thought = Span(max(begin, 0), end)
    at = text.find("<answer>", after)
    if at < 0:
        return thought, Span(end, end)
    stop = text.find("</answer>", at)
    last = len(written) if stop < 0 else count(stop + len("</answer>"))
    return thought, Span(max(end, count(at + 1) - 1), last)


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("ordinary", [ORDINARY, (), ("><", "ink>", "k></")], ids=["tags", "spelled", "straddling"])
def test_spans_equal_the_definition_on_random_replies(force, ordinary):
    tokenizer = make_tokenizer(CHATML, ordinary)
    renderer = Renderer(tokenizer, Tags(force=force))
    rng = random.Random(7)
    pieces = ["<think>", "</think>", "<answer>", "</answer>", "><", "</thi", "nk>", " up", "🧊", "é", "\n", "<", ">"]
    closed = answered = 0
    for _ in range(400):
        start = ["", "<think>", "<think>go</think>", "go</think><answer>"][rng.randrange(4)]
        ids = encode(tokenizer, start + "".join(rng.choice(pieces) for _ in range(rng.randrange(12))))
        # Ids that no text gives: single bytes, halves of characters.
        ids = tuple(rng.randrange(7, len(tokenizer)) if rng.random() < 0.03 else token for token in ids)
        ids += (renderer.end_of_turn_id,) if rng.random() < 0.5 else ()
        reply = read(renderer, ids)
        assert (reply.thought, reply.answer) == slow_spans(renderer, tokenizer, ids), (ids, reply.text)
        closed += reply.closed
        answered += len(reply.answer) > 0
    assert min(closed, answered) > 50, "the sample must hold closed thoughts and answers"


def refusal(tokenizer: PreTrainedTokenizerFast, tags: Tags | None = None, **options: object) -> str:
    with pytest.raises(ValueError, match=r"^[A-Z].*\.$") as caught:
        Renderer(tokenizer, tags or Tags(), template_options=options)
    return str(caught.value)


@pytest.mark.parametrize("name", ["messages", "conversation", "chat_template", "return_dict", "tokenize", "tools"])
def test_an_option_that_is_no_variable_of_the_template_is_refused(name):
    assert f"found ['{name}'], which the renderer sets itself" in refusal(make_tokenizer(CHATML), **{name: "1"})


def test_an_injected_empty_thought_is_refused_with_the_name_of_the_option():
    tokenizer = make_tokenizer(FORGETFUL)
    assert "`enable_thinking`" in refusal(tokenizer, enable_thinking=False)
    assert Renderer(tokenizer, template_options={"enable_thinking": True}).opening == "<think>"
    always = make_tokenizer(CHATML.replace("assistant\n{% endif", "assistant\n<think></think>{% endif"))
    assert "empty thought" in refusal(always)


def test_a_thought_closed_by_a_word_in_the_messages_is_refused_when_it_appears():
    template = CHATML.replace(
        "<|im_start|>assistant\n{% endif",
        "<|im_start|>assistant\n{% if '/quiet' in messages[0].content %}<think>\n</think>{% endif %}{% endif",
    )
    renderer = Renderer(make_tokenizer(template))
    with pytest.raises(ValueError, match="empty thought"):
        renderer.start([Message("system", "Play. /quiet"), Message("user", "P")])


def test_a_template_that_opens_the_thought_only_sometimes_is_refused_when_it_does():
    template = CHATML.replace(
        "<|im_start|>assistant\n{% endif",
        "<|im_start|>assistant\n{% if 'deep' in messages[0].content %}<think>\n{% endif %}{% endif",
    )
    renderer = Renderer(make_tokenizer(template))
    with pytest.raises(ValueError, match="depending on the messages"):
        renderer.start([Message("user", "deep")])


def test_tags_that_are_special_tokens_delimit_the_thought():
    tokenizer = make_tokenizer(CHATML, ordinary=(), special=("<think>", "</think>"))
    renderer = Renderer(tokenizer)
    reply = read(renderer, renderer.as_sampled("<think>go</think><answer>Up</answer>"))
    assert decode(tokenizer, reply.ids[reply.thought.start : reply.thought.end]) == "go</think>"
    assert reply.text == "<think>go</think><answer>Up</answer>"


def test_tags_that_the_tokenizer_cannot_write_are_refused():
    tokenizer = make_metaspace_tokenizer()
    assert "cannot" not in refusal(tokenizer, Tags(open="◁think▷"))
    assert "tags.open = '◁think▷'" in refusal(tokenizer, Tags(open="◁think▷"))


@pytest.mark.parametrize("tags", [{"open": ""}, {"close": "<think>"}, {"answer_open": " <answer>"}])
def test_tags_that_cannot_delimit_anything_are_refused(tags):
    with pytest.raises(ValueError, match="The four tags must be different"):
        Tags(**tags)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (None, "`chat_template` is empty"),
        (
            CHATML.replace("<|im_end|>", "{% if '</think>' in m.content %}<|end|>{% else %}<|im_end|>{% endif %}"),
            "does not depend on that content",
        ),
        (
            CHATML.replace("<|im_end|>", "<|im_end|>{% if m.content | length > 99 %} (long){% endif %}"),
            "does not depend on that content",
        ),
        (CHATML.replace("<|im_end|>", "<|im_end|>[{{ loop.index }}]"), "does not depend on that content"),
        ("<|begin|>{{ messages | length }}" + CHATML, "keep the text before a reply"),
        (CHATML.split("{% if add_generation_prompt")[0], "adds a generation prompt"),
        (
            CHATML.replace("{{ m.content }}", "{% if m.role == 'user' %}{{ m.content }}{% endif %}"),
            "write every message once",
        ),
        *((CHATML.replace("<|im_end|>", end), "with one special token") for end in ("\n", "</turn>", " <|im_end|>")),
    ],
    ids=["none", "thought", "length", "position", "rewritten", "no_prompt", "deaf", "line_end", "word", "blank"],
)
def test_a_template_that_cannot_be_continued_by_appending_is_refused(template, words):
    assert words in refusal(make_tokenizer(template))


def test_a_role_that_the_template_refuses_is_a_sentence():
    strict = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% endfor %}"
    )
    renderer = Renderer(make_tokenizer(strict + CHATML))
    with pytest.raises(ValueError, match=r"roles \['system', 'user'\]: no system"):
        renderer.start(FIRST)


def test_a_reply_that_the_prompt_opens_and_the_end_of_turn_closes_has_the_usual_tags() -> None:
    """The tags of Cohere's models cannot delimit an answer here: Command A's replies have neither."""
    renderer = Renderer(make_tokenizer(COMMAND_A, special=("<|START_RESPONSE|>", "<|END_RESPONSE|>")))
    said = format_reply(["Up"], "so")
    assert read_reply(read(renderer, renderer.as_sampled(said)).text, ["Up"], 1).actions == ("Up",)
