"""Tools in chat templates: exact prompts, the role of results, spans of thought and call, and every refusal."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("transformers", reason="rendering is tested with transformers tokenizers: install heedful[train]")

from heedful.models.chat.render import Renderer
from heedful.models.chat.replies import Tags
from heedful.types import Conversation, Message, Prompt, Span, Tool
from tests.models.chat.test_render import CHATML, HEADERS, ORDINARY, decode, make_tokenizer, read
from tool_toy import TOOLS

HERMES = (
    "{% if tools %}<|im_start|>system\nTools:\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    'Call one as <tool_call>{"name": .., "arguments": {..}}</tool_call><|im_end|>\n{% endif %}'
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_RESULTS = HERMES.replace(
    "{% if m.role == 'tool' %}", "{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}"
)
LLAMA = HEADERS.replace(
    "<|begin|>",
    "<|begin|>{% if tools %}<|head|>system<|/head|>\n\n{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    '\nRespond as {"name": .., "parameters": {..}}<|eot|>{% endif %}',
).replace(
    "{{ m.content | trim }}",
    "{% if m.tool_calls %}{% for call in m.tool_calls %}"
    '{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}{% endfor %}'
    "{% elif m.role == 'tool' %}{{ m.content | tojson }}{% else %}{{ m.content | trim }}{% endif %}",
)
CALL = '<tool_call>{"name": "search", "arguments": {"query": "oak"}}</tool_call>'


def conversation(renderer: Renderer, reply: str, *later: Message) -> Conversation:
    messages = (Message("user", "Translate oak."), Message("assistant", reply, renderer.as_sampled(reply)), *later)
    return Conversation("k", messages, turn=1)


def test_tools_are_written_once_and_results_have_a_role_of_their_own():
    tokenizer = make_tokenizer(HERMES)
    renderer = Renderer(tokenizer, Tags(force=False), tools=TOOLS)
    assert renderer.result_role == "tool"
    start = renderer.start([Message("user", "Translate oak.")])
    schemas = "".join(json.dumps(tool.schema) + "\n" for tool in TOOLS)
    told = 'Call one as <tool_call>{"name": .., "arguments": {..}}</tool_call>'
    asked = "<|im_start|>user\nTranslate oak.<|im_end|>\n<|im_start|>assistant\n"
    assert start.text == f"<|im_start|>system\nTools:\n{schemas}{told}<|im_end|>\n{asked}"
    glue = renderer.next_prompt(conversation(renderer, CALL, Message("tool", "found elm")))
    result = "<|im_start|>user\n<tool_response>\nfound elm\n</tool_response><|im_end|>\n"
    assert glue.text == f"\n{result}<|im_start|>assistant\n"
    again = renderer.next_prompt(conversation(renderer, "no call", Message("user", "Call a tool.")))
    assert again.text == "\n<|im_start|>user\nCall a tool.<|im_end|>\n<|im_start|>assistant\n"


def test_the_context_holds_the_sampled_ids_as_they_are():
    tokenizer = make_tokenizer(HERMES)
    renderer = Renderer(tokenizer, Tags(force=False), tools=TOOLS)
    odd = tuple(tokenizer.convert_tokens_to_ids(list("<tool_call>"))) + renderer.as_sampled(CALL)[1:]
    messages = (Message("user", "oak"), Message("assistant", "x", odd), Message("tool", "elm"))
    ids = renderer.context_ids(Conversation("k", messages, turn=1))
    start = renderer.start(messages[:1]).ids
    assert ids[: len(start)] == start
    assert ids[len(start) : len(start) + len(odd)] == odd
    assert decode(tokenizer, ids[len(start) + len(odd) :]).count("<tool_response>") == 1


@pytest.mark.parametrize(("template", "role"), [(HERMES, "tool"), (LLAMA, "tool"), (NO_RESULTS, "user")])
def test_the_role_of_results_is_that_of_the_template_where_it_has_one(template, role):
    renderer = Renderer(make_tokenizer(template), tools=TOOLS)
    assert renderer.result_role == role
    text = renderer.glue([Message("tool", 'a "quoted" word')], ended=True).text
    if template is LLAMA:
        assert "<|head|>tool<|/head|>\n\n" + json.dumps('a "quoted" word') in text
    elif role == "user":
        assert '<|im_start|>user\na "quoted" word<|im_end|>' in text


def test_a_template_may_take_the_arguments_as_json_and_demonstrations_are_in_its_form():
    begin, middle, end = (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    )
    written = f"{{{{ '{begin}' + call.function.name + '{middle}' + call.function.arguments + '{end}' }}}}"
    template = HERMES.replace("<tool_call>{{ call.function | tojson }}</tool_call>", written)
    renderer = Renderer(make_tokenizer(template), Tags(force=False), tools=TOOLS)
    assert renderer.result_role == "tool"
    call = f'{begin}search{middle}{{"query": "oak"}}{end}'
    assert renderer._decode(renderer.as_sampled(f"so{CALL}")) == f"so{call}<|im_end|>"
    assert spans(renderer, f"so{call}") == ("so", call, True)


def test_a_call_is_found_whole_behind_a_prompt_that_opens_the_thought():
    """QwQ writes a call where its prompt has <think>: both marks begin alike."""
    template = HERMES.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    renderer = Renderer(make_tokenizer(template, (*ORDINARY, "<tool_call>", "</tool_call>")), tools=TOOLS)
    assert renderer.stop_ids == {renderer.end_of_turn_id}
    assert renderer._decode(renderer.as_sampled(f"<think>so</think>{CALL}")) == f"so</think>{CALL}<|im_end|>"
    glue = renderer.next_prompt(conversation(renderer, f"<think>\nso</think>{CALL}", Message("tool", "elm")))
    result = "<|im_start|>user\n<tool_response>\nelm\n</tool_response><|im_end|>\n"
    assert glue.text == f"\n{result}<|im_start|>assistant\n<think>\n"


def test_the_arguments_of_a_tool_may_have_any_type():
    typed = {"steps": {"type": "integer"}, "way": {"enum": ["left", "right"]}}
    move = Tool("move", "Move.", {"type": "object", "properties": typed, "required": ["steps"]})
    assert Renderer(make_tokenizer(HERMES), Tags(force=False), tools=(move,)).result_role == "tool"


NUMBERED = "<|tool_calls_section_begin|><|tool_call_begin|>#<|tool_call_argument_begin|>"
NINE = "{% if call.id | length != 9 %}{{ raise_exception('an id has 9 letters') }}{% endif %}"


@pytest.mark.parametrize(
    ("begin", "end", "strict", "id"),
    [
        (NUMBERED, "<|tool_call_end|><|tool_calls_section_end|>", "", "functions.search:1"),
        ("[TOOL_CALLS]search[CALL_ID]#[ARGS]", "", NINE, "a1B2c3D4e"),
    ],
    ids=["Kimi K2", "Mistral Small 3.2"],
)
def test_the_result_of_a_call_repeats_the_id_that_the_model_gave_it(begin, end, strict, id):
    written = strict + begin.replace("#", "{{ call.id }}") + "{{ call.function.arguments | tojson }}" + end
    template = HERMES.replace("<tool_call>{{ call.function | tojson }}</tool_call>", written)
    template = template.replace("<tool_response>\n", "Return of {{ m.tool_call_id }}\n")
    renderer = Renderer(make_tokenizer(template), Tags(force=False), tools=TOOLS)
    call = begin.replace("#", id) + '{"query": "oak"}' + end
    ids = encoded(renderer, call)
    messages = (Message("user", "oak"), Message("assistant", call, ids), Message("tool", "elm"))
    assert f"Return of {id}\nelm" in renderer.next_prompt(Conversation("k", messages)).text


def test_a_renderer_without_tools_shows_results_as_the_user():
    renderer = Renderer(make_tokenizer(HERMES))
    assert renderer.glue([Message("tool", "elm")], ended=True) == renderer.glue([Message("user", "elm")], ended=True)


OTHER_FORM = HERMES.replace(
    "<tool_call>{{ call.function | tojson }}</tool_call>", "[{{ call.function.arguments.query }}]"
)
UNTOLD = HERMES.replace(
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}", ""
).replace('Call one as <tool_call>{"name": .., "arguments": {..}}</tool_call>', "")
MARKED = LLAMA.replace('{"name": "{{', '<|function_call|>{"name": "{{')
ONE_TOOL = HERMES.replace("for tool in tools %}", "for tool in tools[:1] %}")


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (CHATML, "renders the same text with and without them"),
        (HEADERS, "renders the same text with and without them"),
        (OTHER_FORM, "writes calls as .*Hermes.*Llama"),
        (MARKED, "writes calls as .*found '<|function_call|>"),  # GigaChat 3.1
        (UNTOLD, "tells how calls are written"),
        (ONE_TOOL, "'finish' is missing"),
    ],
    ids=["chatml", "headers", "other form", "marked", "untold", "one tool"],
)
def test_a_template_that_cannot_show_tools_is_refused(template, sentence):
    Renderer(make_tokenizer(template))
    with pytest.raises(ValueError, match=sentence):
        Renderer(make_tokenizer(template), tools=TOOLS)


def spans(renderer: Renderer, text: str) -> tuple[str, str, bool]:
    """Thought, call, and whether the thought was ended, as texts of the sampled tokens."""
    ids = (
        renderer.as_sampled(text) if renderer.opening and text.startswith(renderer.opening) else encoded(renderer, text)
    )
    reply = read(renderer, ids)
    thought, answer = (renderer._decode(ids[span.start : span.end]) for span in (reply.thought, reply.answer))
    return thought, answer, reply.closed


def encoded(renderer: Renderer, text: str) -> tuple[int, ...]:
    return (*renderer._encode(text), renderer.end_of_turn_id)


def test_the_thought_is_what_comes_before_the_call():
    renderer = Renderer(make_tokenizer(HERMES), Tags(force=False), tools=TOOLS)
    assert spans(renderer, f"I look it up.\n{CALL}") == ("I look it up.\n", CALL, True)
    assert spans(renderer, CALL) == ("", CALL, False)
    assert spans(renderer, "I look it up.") == ("", "", False)
    assert spans(renderer, f"<think>hm</think>{CALL} and more") == ("hm</think>", CALL, True)
    assert spans(renderer, f"<think>{CALL}</think>{CALL}") == (f"{CALL}</think>", CALL, True)
    inside = CALL.replace("oak", "<think>")
    assert spans(renderer, inside) == ("", inside, False)


def test_a_forced_thought_ends_at_its_tag():
    renderer = Renderer(make_tokenizer(LLAMA), tools=TOOLS)
    call = '{"name": "search", "parameters": {"query": "oak"}}'
    assert spans(renderer, f"<think>hm</think>{call}") == ("hm</think>", call, True)
    reply = read(renderer, renderer.as_sampled(f"<think>hm {call}"))
    assert (reply.thought, reply.answer, reply.closed) == (
        Span(0, len(reply.ids)),
        Span(len(reply.ids), len(reply.ids)),
        False,
    )
    assert reply.prompt == Prompt("", ())
