"""Calls of tools in a reply: where the first one is, and what it says.

Two forms are read. Models are taught one of them, and the JSON of both may use either key for the arguments.

| form   | text of a call                                                                     |
|--------|------------------------------------------------------------------------------------|
| Hermes | `<tool_call>{"name": "search", "arguments": {"query": "Mozart"}}</tool_call>`      |
| Llama  | `{"name": "search", "parameters": {"query": "Mozart"}}`, also after `<|python_tag|>` |

The first call counts. Text after it, further calls included, is ignored. Torch-free, and no text makes it raise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from heedful.boundary.jsontext import parse_json_at
from heedful.guarded import in_short
from heedful.types import CALL_START, Tool

OPEN_CALL = "<tool_call>"
CLOSE_CALL = "</tool_call>"
PYTHON_TAG = "<|python_tag|>"

LONGEST_QUOTE = 20
"""Characters of a model's word that a message repeats."""

_START = re.compile(CALL_START)
_BLANK = re.compile(r"[ \t\r\n]*")
_ARGUMENTS = ("arguments", "parameters")
_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True, slots=True)
class CallFault:
    """Why a call cannot be carried out."""

    clause: str
    """For the agent, such as `the tool call is not JSON`."""
    kind: str
    """In one or two words, for terse observations."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """The first call of a text: the range of its characters, and its JSON value."""

    start: int
    end: int
    value: object = None
    fault: CallFault | None = None
    """Why there is no value."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that fits its tool."""

    tool: Tool
    arguments: Mapping[str, Any]


def tools_of(env: object) -> tuple[Tool, ...]:
    """The tools that an environment wants to be called (`protocols.OffersTools`). Empty if its replies are plain.

    Raises ValueError for `tools` of another form, which no template could be written with.
    """
    found = getattr(env, "tools", ()) or ()
    if not _are_tools(found):
        raise ValueError(
            f"Expected a tuple of heedful.types.Tool as `tools` of the environment {getattr(env, 'name', env)}, found "
            f"{in_short(found)}. Declare each with heedful.envs.common.tools.text_tool; `heedful check-env` tries them."
        )
    return tuple(found)


def fitting_tools(env: object) -> tuple[Tool, ...]:
    """The same without an error: empty, too, where `tools` has another form."""
    found = getattr(env, "tools", ())
    return tuple(found) if _are_tools(found) else ()


def _are_tools(found: object) -> bool:
    return isinstance(found, tuple | list) and all(isinstance(tool, Tool) for tool in found)


def find_call(text: str, start: int = 0) -> WrittenCall | None:
    """The first call that begins at `start` or later. `None` if there is none."""
    found = _START.search(text, start)
    if found is None:
        return None
    opening = found[0]
    tagged = opening in (OPEN_CALL, PYTHON_TAG)
    at = _after_blank(text, found.end() if tagged else found.start())
    try:
        value, end = parse_json_at(text, at)
    except ValueError as error:
        fault = CallFault(f"the tool call is {error}", "no JSON")
        return WrittenCall(found.start(), *_unread(text, at, opening, fault))
    if opening != OPEN_CALL:
        return WrittenCall(found.start(), end, value)
    close = _after_blank(text, end)
    if text.startswith(CLOSE_CALL, close):
        return WrittenCall(found.start(), close + len(CLOSE_CALL), value)
    fault = CallFault(f"there is more than one JSON object before {CLOSE_CALL}", "no JSON")
    return WrittenCall(found.start(), *_unread(text, end, opening, fault))


def _after_blank(text: str, start: int) -> int:
    found = _BLANK.match(text, start)
    return start if found is None else found.end()


def _unread(text: str, at: int, opening: str, fault: CallFault) -> tuple[int, None, CallFault]:
    """The end of a call without a value, and why it has none."""
    if opening != OPEN_CALL:
        return len(text), None, fault
    close = text.find(CLOSE_CALL, at)
    if close < 0:
        return len(text), None, CallFault(f"the tool call is not closed by {CLOSE_CALL}", "open call")
    return close + len(CLOSE_CALL), None, fault


def read_call(written: WrittenCall, tools: Sequence[Tool]) -> Call | CallFault:
    """The call, checked against the tools: name, and the names and types of its arguments."""
    if written.fault is not None:
        return written.fault
    value = written.value
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return CallFault(f'the tool call is no JSON object with a "name" (expected {signatures(tools)})', "no name")
    known = {tool.name.lower(): tool for tool in tools}
    tool = known.get(value["name"].strip().lower())
    if tool is None:
        clause = f'unknown tool "{quoted(value["name"])}" (expected {signatures(tools)})'
        return CallFault(clause, "unknown tool")
    given = [value[key] for key in _ARGUMENTS if key in value]
    arguments = given[0] if given else {}
    wrong = _misfit(tool, arguments) if len(given) < 2 else "both arguments and parameters are given"
    if wrong:
        return CallFault(f"{wrong} (expected {signatures([tool])})", "wrong arguments")
    return Call(tool, cast(Mapping[str, Any], arguments))


def _misfit(tool: Tool, arguments: object) -> str:
    """What is wrong with the arguments, as a clause. Empty if nothing is."""
    if not isinstance(arguments, dict):
        return "the arguments are no JSON object"
    schema = tool.parameters
    properties = cast(Mapping[str, Mapping[str, Any]], schema.get("properties") or {})
    missing = [name for name in cast(Collection[str], schema.get("required") or ()) if name not in arguments]
    if missing:
        return f'the argument "{missing[0]}" is missing'
    if not schema.get("additionalProperties"):
        unknown = next((name for name in arguments if name not in properties), None)
        if unknown is not None:
            return f'unknown argument "{quoted(unknown)}"'
    for name, value in arguments.items():
        wrong = _mistyped(value, properties.get(name) or {})
        if wrong:
            return f'the argument "{name}" {wrong}'
    return ""


def _mistyped(value: object, schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _KINDS:
        fits = isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))
        if not fits:
            return f"is not of the type {kind}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"is none of {', '.join(map(str, choices))}"
    return ""


def signatures(tools: Sequence[Tool]) -> str:
    """The tools as `search(query), finish(answer)`."""
    return ", ".join(f"{tool.name}({', '.join(signature(tool))})" for tool in tools)


def signature(tool: Tool) -> list[str]:
    """The names of the arguments of a tool."""
    properties = tool.parameters.get("properties")
    return list(map(str, properties)) if isinstance(properties, Mapping) else []


def quoted(word: str) -> str:
    """A model's word for a message. No mark of a chat template survives."""
    plain = "".join(letter if letter.isalnum() or letter in " -_" else "." for letter in word[:LONGEST_QUOTE])
    return plain + ("..." if len(word) > LONGEST_QUOTE else "")
