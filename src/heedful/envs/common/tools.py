"""Actions as calls of tools, in an environment whose plain actions are text.

An environment declares its tools once. A call then stands for a plain answer, so rules, rewards and penalties are those
of the plain grammar:

    class Library(ToolEnvironment):
        declared = (text_tool("search", "Search the library.", "query", "Words to search for.", "search[{}]"),)

`read_answer(reply, longest, env.tools)` (or `answer_text(reply, env.tools)`) reads both forms, and `free_text_rules`
with `tools=env.tools` states the right one. What is wrong with a call costs the same penalty as a reply without an
answer. docs/environments.md, "Tool calls", has the table of faults.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from heedful.envs.common.actions import CLOSE_THOUGHT, OPEN_THOUGHT, answer_text, thought_of
from heedful.envs.common.base import SolvableEnvironment
from heedful.models.chat.calls import CLOSE_CALL, OPEN_CALL, Fault, fitting_tools, signature
from heedful.types import Tool

ActionForm = Literal["plain", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnvironment(SolvableEnvironment):
    """A built-in environment whose actions can also be calls of tools. A subclass declares the tools."""

    declared: ClassVar[tuple[Tool, ...]] = ()

    actions: ActionForm = "plain"
    """`plain`: the answer is text between answer tags. `tool_calls`: the model calls tools, which its chat template
    must write. The rewards are the same."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that a reply may call. Empty under plain actions."""
        return self.declared if self.actions == "tool_calls" else ()


def text_tool(name: str, description: str, argument: str, meaning: str, form: str = "{}") -> Tool:
    """A tool with one text argument. `form`: the plain answer it stands for, with `{}` in the argument's place."""
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
    }
    if form.count("{}") != 1:
        raise ValueError(f"The plain form of the tool {name} must hold {{}} once, but is {form!r}.")
    return Tool(name, description, parameters, form)


def in_form(env: object, reply: str) -> str:
    """A plain reply as the environment wants it: the same, or with a call in place of the answer."""
    tools = fitting_tools(env)
    answer = answer_text(reply) if tools else Fault("", "")
    if isinstance(answer, Fault):
        return reply
    call = call_text(answer, tools)
    return f"{OPEN_THOUGHT}{thought_of(reply)}{CLOSE_THOUGHT}{call}" if call else reply


def call_text(answer: str, tools: Sequence[Tool]) -> str:
    """The call that stands for a plain answer, in the Hermes form. Empty if no tool has this plain form."""
    text = answer.strip()
    for tool in tools:
        before, hole, after = tool.form.partition("{}")
        fits = text.lower().startswith(before.lower()) and text.lower().endswith(after.lower())
        if hole and fits and len(text) >= len(before) + len(after):
            argument = text[len(before) : len(text) - len(after)]
            arguments = dict.fromkeys(signature(tool), argument)
            written = json.dumps({"name": tool.name, "arguments": arguments})
            return f"{OPEN_CALL}\n{written}\n{CLOSE_CALL}"
    return ""
