"""What a chat template does with tools: whether it writes them, in which form it writes calls, and the role of results.

A template is a program, so it is asked by rendering short conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from heedful.models.chat.calls import OPEN_CALL, CallFault, find_call, read_call, signature
from heedful.types import Tool

ResultRole = Literal["tool", "user"]

ChatRenderer = Callable[[Sequence[Mapping[str, object]], Sequence[Tool]], str]
"""Messages and tools -> text with a generation prompt. Raises ValueError for what the template refuses."""

_ASKED = {"role": "user", "content": "heedfulquestion"}
_REPLY = {"role": "assistant", "content": "heedfulmark"}
_RESULT = "heedfulresult"
_ARGUMENT = "heedfulargument"

_PLAIN = "play with plain actions (--env.actions plain, if the environment has both)"
_REMEDY = f"Use a model whose chat template has tools, or {_PLAIN}."


def examine_tools(render: ChatRenderer, tools: Sequence[Tool]) -> ResultRole:
    """The role under which the template shows the result of a call: `tool` where it has that role, else `user`.

    Raises ValueError for a template that does not write the tools, or that writes calls in a form that is not read.
    """
    plain, written = render([_ASKED], ()), render([_ASKED], tools)
    if written == plain:
        raise ValueError(
            "Expected a chat template that writes tools, since replies are tool calls, but it "
            f"renders the same text with and without them. {_REMEDY}"
        )
    missing = [name for tool in tools for name in (tool.name, *signature(tool)) if name not in written]
    if missing:
        raise ValueError(
            f"Expected a chat template that writes the name and the arguments of every tool, but {missing[0]!r} is "
            f"missing from what it renders. {_REMEDY}"
        )
    call = _written_call(render, tools[0])
    if not call and OPEN_CALL not in written:
        raise ValueError(
            f"Expected a chat template that tells how calls are written, but it shows no call of a reply and no "
            f"{OPEN_CALL}. {_REMEDY}"
        )
    found = find_call(call) if call else None
    if call and (found is None or isinstance(read_call(found, tools), CallFault)):
        raise ValueError(
            'Expected a chat template that writes calls as <tool_call>{"name": .., "arguments": {..}}</tool_call> '
            f'(Hermes) or {{"name": .., "parameters": {{..}}}} (Llama), found {call[:120]!r}. Use a model that was '
            f"taught one of these forms, or {_PLAIN}."
        )
    return _result_role(render, tools)


def _written_call(render: ChatRenderer, tool: Tool) -> str:
    """A call as the template writes it, from the reply's header on. Empty if it does not show calls at all."""
    arguments = dict.fromkeys(signature(tool), _ARGUMENT)
    function = {"name": tool.name, "arguments": arguments}
    said = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}
    try:
        text = render([_ASKED, said], [tool])
        alone = render([_ASKED], [tool])
    except ValueError:
        return ""  # a call in the history is refused, and heedful never renders one
    shared = next((at for at, (one, two) in enumerate(zip(text, alone, strict=False)) if one != two), len(alone))
    part = text[shared:]
    return part if not arguments or _ARGUMENT in part else ""


def _result_role(render: ChatRenderer, tools: Sequence[Tool]) -> ResultRole:
    try:
        text = render([_ASKED, _REPLY, {"role": "tool", "content": _RESULT}], tools)
    except ValueError:
        return "user"
    before, _, after = text.partition(_REPLY["content"])
    return "tool" if after.count(_RESULT) == 1 and _RESULT not in before else "user"
