"""Calls of tools in a reply: where the first one is, and what it says. `forms.py` has the forms of all families.

The first call counts. Text after it, further calls included, is ignored. Torch-free, and no text makes it raise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from heedful.guarded import in_short
from heedful.models.chat.forms import FORMS, Form, literal
from heedful.types import CALL_START, Tool

OPEN_CALL = "<tool_call>"
CLOSE_CALL = "</tool_call>"

LONGEST_QUOTE = 20
"""Characters of a model's word that a message repeats."""

_KINDS = {"string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a reply has no answer, or a call cannot be carried out."""

    clause: str
    """For the agent, such as `the answer is empty` or `the tool call is not JSON`."""
    kind: str
    """In one or two words, for terse observations."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """The first call of a text: the range of its characters, and its value, an object with `name` and `arguments`."""

    start: int
    end: int
    value: object
    fault: Fault | None
    """Why there is no value."""
    form: Form
    name: str | None
    """The name of the tool, if the form has it outside of JSON."""
    id: str | None
    """What the model calls this call, if the form has a place for that. The result repeats it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that fits its tool."""

    tool: Tool
    arguments: Mapping[str, Any]


def tools_of(env: object) -> tuple[Tool, ...]:
    """The tools that an environment wants to be called (`protocols.OffersTools`). Empty if its replies are plain.

    Raises ValueError for `tools` of another form, which no template could be written with.
    """
    tools, found = fitting_tools(env), getattr(env, "tools", ())
    if found and not tools:
        raise ValueError(
            f"Expected a tuple of heedful.types.Tool as `tools` of the environment {getattr(env, 'name', env)}, found "
            f"{in_short(found)}. Declare each with heedful.envs.common.tools.text_tool; `heedful check-env` tries them."
        )
    return tools


def fitting_tools(env: object) -> tuple[Tool, ...]:
    """The same without an error: empty, too, where `tools` has another form."""
    found = getattr(env, "tools", ())
    fits = isinstance(found, tuple | list) and all(isinstance(tool, Tool) for tool in found)
    return tuple(found) if fits else ()


def find_call(text: str, start: int = 0) -> WrittenCall | None:
    """The first call that begins at `start` or later. `None` if there is none."""
    for found in re.compile(CALL_START).finditer(text, start):
        for form in FORMS:
            if opening := form.opening.match(text, found.start()):
                return _read(form, opening, text)
    return None


def _read(form: Form, opening: re.Match[str], text: str) -> WrittenCall:
    start, at, value, parts = opening.start(), opening.end(), None, opening.groupdict()
    try:
        value, at = form.body(text, at)
        extra = "other text" if form.is_text else "more than one JSON object"
        fault = None if form.close.match(text, at) else Fault(f"there is {extra} before {form.mark}", "no JSON")
    except ValueError as error:
        fault = Fault(f"the tool call is {error}", "no JSON")
    close = form.close.search(text, at) if form.mark or not fault else None
    end = close.end() if close else len(text)
    if fault:
        value = None
        if form.mark and not close:
            fault = Fault(f"the tool call is not closed by {form.mark}", "open call")
    elif (name := parts.get("name")) is not None:
        value = {"name": name, "arguments": value}
    return WrittenCall(start, end, value, fault, form, parts.get("name"), parts.get("id"))


def read_call(written: WrittenCall, tools: Sequence[Tool]) -> Call | Fault:
    """The call, checked against the tools: name, and the names and types of its arguments."""
    if written.fault is not None:
        return written.fault
    value = written.value
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Fault(f'the tool call is no JSON object with a "name" (expected {signatures(tools)})', "no name")
    known = {tool.name.lower(): tool for tool in tools}
    tool = known.get(value["name"].strip().lower())
    if tool is None:
        clause = f'unknown tool "{quoted(value["name"])}" (expected {signatures(tools)})'
        return Fault(clause, "unknown tool")
    given = [value[key] for key in ("arguments", "parameters") if key in value]
    arguments = given[0] if given else {}
    properties = cast(Mapping[str, Mapping[str, Any]], tool.parameters.get("properties") or {})
    if written.form.is_text:
        arguments = {key: _typed(text, properties.get(key) or {}) for key, text in arguments.items()}
    wrong = _misfit(tool, properties, arguments) if len(given) < 2 else "both arguments and parameters are given"
    if wrong:
        return Fault(f"{wrong} (expected {signatures([tool])})", "wrong arguments")
    return Call(tool, cast(Mapping[str, Any], arguments))


def _typed(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value of an argument that was written as text: JSON or Python, unless the schema allows a text."""
    kinds = [one["type"] for one in (schema, *schema.get("anyOf", ())) if "type" in one]
    with suppress(ValueError):
        if isinstance(value, str) and kinds and not any("string" in kind for kind in kinds):
            return literal(value.strip())
    return value


def _misfit(tool: Tool, properties: Mapping[str, Mapping[str, Any]], arguments: object) -> str:
    """What is wrong with the arguments, as a clause. Empty if nothing is."""
    if not isinstance(arguments, dict):
        return "the arguments are no JSON object"
    missing = [name for name in cast(Collection[str], tool.parameters.get("required") or ()) if name not in arguments]
    if missing:
        return f'the argument "{missing[0]}" is missing'
    unknown = [name for name in arguments if name not in properties]
    if unknown and not tool.parameters.get("additionalProperties"):
        return f'unknown argument "{quoted(unknown[0])}"'
    for name, value in arguments.items():
        schema = properties.get(name) or {}
        kind, choices = schema.get("type"), schema.get("enum")
        known = _KINDS.get(kind, object) if isinstance(kind, str) else object
        if not isinstance(value, known) or (isinstance(value, bool) and kind in ("integer", "number")):
            return f'the argument "{name}" is not of the type {kind}'
        if isinstance(choices, list) and value not in choices:
            return f'the argument "{name}" is none of {", ".join(map(str, choices))}'
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
