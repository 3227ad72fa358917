"""How the models of each family write the call of a tool: one row of data for each form. Torch-free.

Read in the families' chat templates, and in the parsers of vLLM and SGLang. The engine of transformers
(`transformers.utils.chat_parsing`) gives no places of calls, and takes cut ones for whole.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from heedful.boundary.jsontext import parse_json, parse_json_at

Body = Callable[[str, int], tuple[Any, int]]
"""Text and place -> the value that begins there, and the place after it. Raises ValueError, a phrase."""


def _json(text: str, at: int) -> tuple[Any, int]:
    return parse_json_at(text, len(text) - len(text[at:].lstrip()))


def _pairs(argument: re.Pattern[str], read: Callable[[re.Match[str]], Any], text: str, at: int) -> tuple[Any, int]:
    """One argument after another."""
    found = {}
    while one := argument.match(text, at):
        found[one["key"]], at = read(one), one.end()
    return found, at


def _text(one: re.Match[str]) -> Any:
    return parse_json(one["value"]) if one.groupdict().get("string") == "false" else one["value"]


def literal(text: str) -> Any:
    """A literal of Python or JSON. A string may hold its own quotes. Raises ValueError, a phrase."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        escapes = {"n": "\n", "r": "\r", "t": "\t"}
        return re.sub(r"\\([\\'\"nrt])", lambda found: escapes.get(found[1], found[1]), text[1:-1])
    with suppress(ValueError):
        return parse_json(text)
    try:
        return ast.literal_eval(text.replace("\\", "\\\\"))  # Python warns of escapes that it does not know
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("without a value of Python") from error


def _python(one: re.Match[str]) -> Any:
    return literal(one["value"])


_BARE = re.compile(
    r'<\|"\|>(?P<text>.*?)<\|"\|>|"(?:[^"\\]|\\.)*"|(?P<key>[\w.-]+)\s*(?=:)|[\w.-]+|(?!<tool_call\|>).', re.DOTALL
)


def _bare(text: str, at: int) -> tuple[Any, int]:
    """JSON with bare keys, and with strings between `<|"|>`, in which nothing is escaped."""
    parts = []
    while one := _BARE.match(text, at):
        parts.append(one[0] if one.lastgroup is None else json.dumps(one[one.lastgroup]))
        at = one.end()
    return parse_json("".join(parts)), at


@dataclass(frozen=True, slots=True)
class Form:
    """A form of calls. White space may stand between its parts."""

    families: str
    opening: re.Pattern[str]
    """With a group `name`, unless the name is in the body."""
    close: re.Pattern[str]
    mark: str
    """The last text of a call. Empty where a call ends with its JSON."""
    body: Body
    is_text: bool
    """Whether arguments are texts, which the schema of the tool types."""


def _form(families: str, *parts: str, body: Body = _json, read: Any = _text) -> Form:
    """The patterns of calls from `begin` to `end`, in a block from `block` to `last`, with such arguments."""
    block, begin, end, last, argument = (*parts, "")[:5]
    again = rf"|(?=,?\s*{begin})" if begin and end else ""
    close = rf"\s*{re.escape(end)}\s*(?:{re.escape(last)}{again})" if last else r"\s*" + re.escape(end) if end else ""
    if argument:  # a closing mark in a text is a part of it, unless another argument or the end of the call follows
        another = re.sub(r"\?P<\w+>", "?:", argument.partition("(?P<value>")[0])
        body = partial(_pairs, re.compile(rf"\s*{argument}(?={close}|\s*{another})", re.DOTALL), read)
    opening = re.compile(rf"{re.escape(block)}\s*{begin}" if block else begin)
    return Form(families, opening, re.compile(close), last or end, body, bool(argument) and read is _text)


_NAME = r"(?P<name>[\w.-]+)"
_FUNCTION = r"<function=(?P<name>[^>\n]+)>"
_TOOL, _CALLS, _SECTION = "<tool_call>", "<｜tool▁calls▁begin｜>", "<|tool_calls_section_begin|>"
_QWEN = r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>"
_LFM = r"""(?:,\s*|(?<=\())(?P<key>\w+)\s*=\s*(?P<value>'.*?'|".*?"|[^'"\s].*?)"""
_GLM = r"<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
_INVOKE = r'<@invoke name="(?P<name>[^"]+)">'
_GIVEN = r'<@parameter name="(?P<key>[^"]+)"(?: string="(?P<string>true|false)")?>(?P<value>.*?)</@parameter>'
_TO = r"(?:<\|channel\|>\w+)? ?to=functions\.NAME\s*(?:<\|channel\|>\w+)?\s*(?:<\|constrain\|>)?\w*\s*<\|message\|>"
_KIMI = r"<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?NAME(?::\d+)?)\s*<\|tool_call_argument_begin\|>"

FORMS = (
    _form("Qwen3.5 to 3.8, Nemotron 3", _TOOL, _FUNCTION, "</function>", "</tool_call>", _QWEN),
    _form("Seed-OSS", "<seed:tool_call>", _FUNCTION, "</function>", "</seed:tool_call>", _QWEN.replace(r"\n?", "")),
    _form("GLM-4.5 to 4.7", _TOOL, rf"{_NAME}\s*(?=<arg_key>|</tool_call>)", "", "</tool_call>", _GLM),
    _form("Qwen2.5, Qwen3, Hermes", _TOOL, "", "", "</tool_call>"),
    _form("Gemma 4", "<|tool_call>", f"call:{_NAME}", "", "<tool_call|>", body=_bare),
    _form("LFM2.5", "<|tool_call_start|>[", rf"{_NAME}\(", ")", "]<|tool_call_end|>", _LFM, read=_python),
    _form("gpt-oss", "", _TO.replace("NAME", _NAME), "<|call|>", ""),
    *(
        _form(family, _CALLS, f"<｜tool▁call▁begin｜>{begin}", f"{fence}<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>")
        for family, begin, fence in (
            ("DeepSeek V3, R1", rf"function<｜tool▁sep｜>{_NAME}\s*```json", "```"),
            ("DeepSeek V3.1", f"{_NAME}<｜tool▁sep｜>", ""),
        )
    ),
    *(
        _form(family, f"<{block}>", _INVOKE.replace("@", at), f"</{at}invoke>", f"</{block}>", _GIVEN.replace("@", at))
        for family, at, block in (
            ("DeepSeek V3.2", "｜DSML｜", "｜DSML｜function_calls"),
            ("DeepSeek V4", "｜DSML｜", "｜DSML｜tool_calls"),
            ("MiniMax M2", "", "minimax:tool_call"),
        )
    ),
    _form("Kimi K2", _SECTION, _KIMI.replace("NAME", _NAME), "<|tool_call_end|>", _SECTION.replace("begin", "end")),
    _form("Mistral Small 3.2, Ministral 3", "", rf"\[TOOL_CALLS\]{_NAME}(?:\[CALL_ID\](?P<id>\w+))?\[ARGS\]", "", ""),
    _form("Llama 3.1 to 4", "", r'<\|python_tag\|>|(?=\{\s*")', "", ""),
)
"""The first one that fits reads a call."""
