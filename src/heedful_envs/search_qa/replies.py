"""The reading of a reply: one search, or the final answer.

| answer block            | meaning                                         |
|-------------------------|-------------------------------------------------|
| `search[words]`         | look for passages                               |
| `finish[answer]`        | the final answer                                |
| anything else           | a fault, the turn is spent                      |

The verb is read without regard to case. The text reaches from the first `[` to the last `]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.envs.common import ReadAnswer, cut_at_word, harmless, read_answer
from heedful.types import Tool

Verb = Literal["search", "finish"]

LONGEST_TEXT = 500
"""Characters of a query or an answer."""

_ACTION = re.compile(r"(search|finish)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ReadAction:
    """What a reply asks for. With a fault, both are empty."""

    verb: Verb | Literal[""]
    text: str
    read: ReadAnswer


def read_action(reply: str, tools: Sequence[Tool] = ()) -> ReadAction:
    """The action of a reply, plain or as a call of one of the tools, or what is wrong with it."""
    read = read_answer(reply, LONGEST_TEXT + len("finish[]"), tools)
    if read.fault:
        return ReadAction("", "", read)
    found = _ACTION.fullmatch(read.text)
    if found is None:
        return ReadAction("", "", ReadAnswer("", "the answer is neither search[...] nor finish[...]", "unknown action"))
    verb: Verb = "search" if found[1].lower() == "search" else "finish"
    text = " ".join(found[2].split())
    if not text:
        return ReadAction("", "", ReadAnswer("", f"there is nothing between the brackets of {verb}[]", "empty action"))
    return ReadAction(verb, text, read)


def written(verb: Verb, text: str) -> str:
    """An action as an agent writes it."""
    return f"{verb}[{text}]"


def action_for(verb: Verb, text: str) -> str:
    """An action with a text that may be foreign or long: on one line, cut to what a reply may hold."""
    return written(verb, cut_at_word(harmless(text), LONGEST_TEXT - len(" ...")).removesuffix(" ..."))
