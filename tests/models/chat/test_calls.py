"""Calls of tools: where they are in a text, what fits a tool, and that no text makes the reader raise."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.models.chat.calls import Call, CallFault, find_call, fitting_tools, read_call, signatures, tools_of
from heedful.types import Tool

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


def read(text: str) -> Call | CallFault | None:
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
    assert isinstance(fault, CallFault)
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
        assert isinstance(read_call(written, TOOLS), Call | CallFault)


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
