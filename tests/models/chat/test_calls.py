"""Calls of tools: where they are in a text, what fits a tool, and that no text makes the reader raise."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.models.chat.calls import Call, Fault, find_call, fitting_tools, read_call, signatures, tools_of
from heedful.models.chat.forms import FORMS
from heedful.models.chat.replies import ReplyParser, Tags
from heedful.types import Prompt, Tool
from tests.models.chat.written_calls import PAGE, WRITTEN, with_table

SEARCH = Tool(
    "search",
    "Search the library.",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "search[{}]",
)
MOVE = Tool(
    "move",
    "Move.",
    {
        "type": "object",
        "properties": {"steps": {"type": "integer"}, "way": {"type": "string", "enum": ["left", "right"]}},
        "required": ["steps"],
    },
)
TOOLS = (SEARCH, MOVE)


def read(text: str) -> Call | Fault | None:
    written = find_call(text)
    return None if written is None else read_call(written, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "search", "arguments": {"query": "Mozart"}}</tool_call>',
        '<tool_call>\n{"name": "search", "arguments": {"query": "Mozart"}}\n</tool_call>',
        'I look it up.\n<tool_call>{"arguments": {"query": "Mozart"}, "name": "search"}</tool_call> and wait',
        '{"name": "search", "parameters": {"query": "Mozart"}}',
        '<|python_tag|>{"name": "search", "parameters": {"query": "Mozart"}}',
        '<|python_tag|> { "type": "function", "name": "Search", "parameters": {"query": "Mozart"}}; {"name": "x"}',
        '<tool_call>{"name": "search", "parameters": {"query": "Mozart"}}</tool_call>',
    ],
)
def test_both_forms_say_the_same_call(text):
    assert read(text) == Call(SEARCH, {"query": "Mozart"})


def test_the_first_call_counts():
    one = '<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>'
    two = one.replace('"a"', '"b"')
    assert read(one + two) == Call(SEARCH, {"query": "a"})
    assert read("{} " + two + one) == Call(SEARCH, {"query": "b"})


MARKS_OF_ENDS = (
    "</tool_call> </parameter> </function> </arg_value> </invoke> <tool_call|> <|tool_call_end|> <|call|> "
    "<｜tool▁call▁end｜> ``` <|tool_calls_section_end|> </｜DSML｜parameter> } ) ] x=1, y"
)
VALUES = ["oak", "print('a', \"b\")", "a\n  b\n", "ähre 木 🌳", "C:\\dir", "", "7", "true", MARKS_OF_ENDS]
each_form = pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN.keys())


@pytest.mark.parametrize("value", VALUES)
@each_form
def test_every_form_gives_back_the_text_that_was_written(write, value):
    call = write("search", query=value)
    before, after = "hm. ü ", " and more"
    written = find_call(before + call + after)
    assert (written.start, written.end) == (len(before), len(before + call))
    assert read_call(written, TOOLS) == Call(SEARCH, {"query": value})


@each_form
def test_every_form_gives_numbers_and_several_arguments(write):
    assert read(write("move", steps=3, way="left")) == Call(MOVE, {"steps": 3, "way": "left"})
    assert read(write("move", steps=3)) == Call(MOVE, {"steps": 3})


@each_form
def test_the_first_of_two_calls_counts_in_every_form(write):
    one, two = write("search", query="a"), write("search", query="b")
    written = find_call(f"{one}\n{two}")
    assert (written.end, read_call(written, TOOLS)) == (len(one), Call(SEARCH, {"query": "a"}))


@each_form
def test_a_call_that_is_cut_anywhere_is_never_a_call(write):
    call = write("move", steps=12, way="left")
    read_anyway = [end for end in range(len(call)) if isinstance(read(call[:end]), Call)]
    assert not read_anyway
    assert isinstance(read(call[:-1]), Fault)


@each_form
def test_values_that_do_not_fit_are_faults_in_every_form(write):
    for arguments, said in (
        ({"steps": "many"}, "not of the type integer"),
        ({"steps": 2, "way": "up"}, "none of left, right"),
        ({"way": "left"}, "missing"),
        ({"steps": 2, "top": 3}, "unknown argument"),
    ):
        fault = read(write("move", **arguments))
        assert isinstance(fault, Fault)
        assert said in fault.clause
    assert read(write("fetch", query="a")).kind == "unknown tool"


@pytest.mark.parametrize("name", [name for name, write in WRITTEN.items() if '"query": "a"' in write("x", query="a")])
def test_bad_json_is_a_fault_up_to_the_end_of_the_call(name):
    good = WRITTEN[name]("search", query="a")
    call = good.replace('"a"', "a")
    written = find_call(call + " and more")
    assert read_call(written, TOOLS).kind == "no JSON"
    assert written.end == len(call if written.form.mark else call + " and more")


def test_two_calls_in_one_block_end_apart():
    kimi = WRITTEN["kimi k2"]
    two = kimi("search", query="b").removeprefix("<|tool_calls_section_begin|>")
    text = kimi("search", query="a").removesuffix("<|tool_calls_section_end|>") + two
    assert text[: find_call(text).end].endswith('"a"}<|tool_call_end|>')
    text = "<|tool_call_start|>[search(query='a'), search(query='b')]<|tool_call_end|>"
    assert text[: find_call(text).end] == "<|tool_call_start|>[search(query='a')"
    assert read(text) == Call(SEARCH, {"query": "a"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"it\'s"', "it's"),
        (r"'it\'s\n'", "it's\n"),
        ("'a, query=b'", "a, query=b"),
        ("'print(1)'", "print(1)"),
    ],
)
def test_strings_of_lfm_are_read_as_python_does_or_as_they_stand(text, value):
    assert read(f"<|tool_call_start|>[search(query={text})]<|tool_call_end|>") == Call(SEARCH, {"query": value})


def test_values_that_are_no_texts_keep_their_types():
    any_type = Tool(
        "set", "Set.", {"type": "object", "properties": {name: {"type": kind} for name, kind in KINDS.items()}}
    )
    for text in (
        "<|tool_call_start|>[set(a=[1, 'x'], b={\"k\": true}, c=True, d=None, e=1.5)]<|tool_call_end|>",
        '<|tool_call>call:set{a:[1,<|"|>x<|"|>],b:{k:true},c:true,d:null,e:1.5}<tool_call|>',
        WRITTEN["qwen3.5"]("set", a='[1, "x"]', b='{"k": true}', c="True", d="None", e="1.5"),
        WRITTEN["minimax m2"]("set", a='[1, "x"]', b='{"k": true}', c="true", d="null", e="1.5"),
    ):
        call = read_call(find_call(text), (any_type,))
        assert call == Call(any_type, {"a": [1, "x"], "b": {"k": True}, "c": True, "d": None, "e": 1.5})


@pytest.mark.parametrize("form", ["qwen3.5", "seed-oss", "glm-4.5", "minimax m2"])
def test_a_text_is_read_by_any_type_of_its_schema(form):
    maybe = {"anyOf": [{"type": "integer"}, {"type": "null"}]}  # as pydantic writes `int | None`
    kinds = {"a": maybe, "b": {"type": "array"}, "c": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}
    tool = Tool("set", "Set.", {"type": "object", "properties": kinds})
    call = WRITTEN[form]("set", a="3", b="['x', True]", c="3")  # Seed-OSS writes lists as Python does
    assert read_call(find_call(call), (tool,)) == Call(tool, {"a": 3, "b": ["x", True], "c": "3"})
    assert read_call(find_call(WRITTEN[form]("set", a="null")), (tool,)) == Call(tool, {"a": None})


KINDS = {"a": "array", "b": "object", "c": "boolean", "d": "null", "e": "number"}


@pytest.mark.parametrize("value", VALUES)
@each_form
def test_the_tokens_of_a_call_are_exact_where_they_split_its_marks(write, value):
    call = write("search", query=value)
    before, after = "hm ü</think>", " and so on"
    end = 0
    ids = (*(before + call + after).encode(), end)
    parser = ReplyParser(lambda some: bytes(some).decode("utf-8", "replace"), Tags(), {end}, calls=True)
    reply = parser.parse(Prompt("", ()), ids, (), opening="<think>")
    assert bytes(ids[reply.thought.start : reply.thought.end]) == before.encode()
    assert bytes(ids[reply.answer.start : reply.answer.end]) == call.encode()


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ('<tool_call>{"name": "search", "arguments": {"query": "a"}}', "open call", "not closed by </tool_call>"),
        ("<tool_call>search(a)</tool_call>", "no JSON", "not JSON"),
        ('<tool_call>{"name": "search",}</tool_call>', "no JSON", "not JSON"),
        ('<tool_call>{"name": "search"} {"name": "x"}</tool_call>', "no JSON", "more than one JSON object"),
        ('{"name": "search", "parameters": {"query": "a"}', "no JSON", "not JSON"),
        ("<|python_tag|>search.call(query='a')", "no JSON", "not JSON"),
        ('{"name": 3, "parameters": {}}', "no name", "search(query), move(steps, way)"),
        ('<tool_call>["search"]</tool_call>', "no name", '"name"'),
        ('{"name": "fetch<|im_end|>", "parameters": {}}', "unknown tool", 'unknown tool "fetch..im_end.."'),
        ('{"name": "search", "parameters": {}}', "wrong arguments", 'argument "query" is missing (expected search('),
        ('{"name": "search"}', "wrong arguments", "missing"),
        ('{"name": "search", "parameters": "a"}', "wrong arguments", "no JSON object"),
        ('{"name": "search", "parameters": {"query": 3}}', "wrong arguments", "not of the type string"),
        ('{"name": "search", "parameters": {"query": "a", "top": 3}}', "wrong arguments", 'unknown argument "top"'),
        ('{"name": "move", "parameters": {"steps": true}}', "wrong arguments", "not of the type integer"),
        ('{"name": "move", "parameters": {"steps": 1, "way": "up"}}', "wrong arguments", "none of left, right"),
        ('{"name": "search", "parameters": {}, "arguments": {}}', "wrong arguments", "both"),
        ('{"name": ' + "[" * 5000, "no JSON", "nested too deep"),
        ('{"name": ' + "7" * 5000 + "}", "no JSON", "digits"),
    ],
)
def test_a_call_that_does_not_fit_says_what_was_expected(text, kind, said):
    fault = read(text)
    assert isinstance(fault, Fault)
    assert fault.kind == kind
    assert said in fault.clause


@pytest.mark.parametrize("text", ["", "search[Mozart]", "{}", '{"query": "a"}', "a {b} c", '"name": "search"'])
def test_text_without_a_call_has_none(text):
    assert find_call(text) is None


@given(query=st.text(), before=st.text(alphabet="ab \n"), after=st.text(max_size=20), hermes=st.booleans())
def test_any_argument_survives_a_call(query, before, after, hermes):
    key = "arguments" if hermes else "parameters"
    body = json.dumps({"name": "search", key: {"query": query}})
    call = f"<tool_call>{body}</tool_call>" if hermes else body
    written = find_call(before + call + after)
    assert written is not None
    assert (written.start, written.end) == (len(before), len(before + call))
    assert read_call(written, TOOLS) == Call(SEARCH, {"query": query})


MARKS = st.sampled_from(
    [
        *(write("search", query="a") for write in WRITTEN.values()),
        "<function=a>",
        "<parameter=b>",
        "</parameter>",
        "<arg_key>",
        "</arg_value>",
        "<|tool_call>call:a{",
        '<|"|>',
        "<|tool_call_start|>[a(",
        "b='",
        ")]<|tool_call_end|>",
        " to=functions.a",
        "<|channel|>commentary",
        "<|message|>",
        "<｜DSML｜",
        "<tool_call>",
        "</tool_call>",
        "<|python_tag|>",
        '{"name":',
        '"arguments":',
        "{",
        "}",
        '"search"',
        " ",
        ",",
        "\ud800",
    ]
)


@given(st.lists(MARKS | st.text(max_size=3), max_size=12).map("".join))
def test_no_text_makes_the_reader_raise(text):
    written = find_call(text)
    if written is not None:
        assert 0 <= written.start < written.end <= len(text)
        assert isinstance(read_call(written, TOOLS), Call | Fault)


def test_the_table_of_the_docs_shows_a_call_of_every_form():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "run `python -m tests.models.chat.written_calls docs/models.md`"
    shown = {find_call(write("search", query="a")).form.families for write in WRITTEN.values()}
    assert shown == {form.families for form in FORMS} - {"DeepSeek V4"}  # that of V3.2 with another mark


def test_signatures_and_environments_without_tools():
    assert signatures(TOOLS) == "search(query), move(steps, way)"
    assert tools_of(object()) == ()


@pytest.mark.parametrize("tools", [5, ({"type": "function"},), "price"])
def test_tools_of_another_form_are_refused_and_not_taken_for_none(tools):
    env = SimpleNamespace(name="shop", tools=tools)
    with pytest.raises(ValueError, match=r"a tuple of heedful\.types\.Tool as `tools` of the environment shop, found"):
        tools_of(env)
    assert fitting_tools(env) == ()
    assert tools_of(SimpleNamespace()) == tools_of(SimpleNamespace(tools=None)) == ()
