"""The action of a reply: `search[words]` or `click[button]`, one in a turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.envs.common import ReadAnswer, read_answer
from heedful.types import Tool

LONGEST_ACTION = 1000
"""Characters of an action."""

_ACTION = re.compile(r"(search|click)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL)
_SEVERAL = re.compile(r"\]\s*\|\|")


@dataclass(frozen=True, slots=True)
class ReadAction:
    """What a reply asks for, or why it asks for nothing."""

    verb: Literal["search", "click", ""]
    argument: str
    read: ReadAnswer
    """The answer as written, and its fault if it has one."""


def read_action(reply: str, tools: Sequence[Tool] = ()) -> ReadAction:
    """Read one reply, plain or a call of one of the tools.

    Verbs count without regard to case. The text reaches from the first `[` to the last `]`.
    """
    read = read_answer(reply, LONGEST_ACTION, tools)
    if read.fault:
        return ReadAction("", "", read)
    if _SEVERAL.search(read.text):
        return _faulty("there is more than one action, and a turn has one", "several actions")
    found = _ACTION.fullmatch(read.text)
    if found is None:
        return _faulty("the answer is neither search[words] nor click[button]", "unknown action")
    argument = " ".join(found[2].split())
    if not argument:
        return _faulty("nothing is between the square brackets", "empty action")
    return ReadAction("search" if found[1].lower() == "search" else "click", argument, read)


def _faulty(fault: str, kind: str) -> ReadAction:
    return ReadAction("", "", ReadAnswer("", fault, kind))
