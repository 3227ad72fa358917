"""Replies that hold one action of the form `verb[text]`, plain or as a call of a tool.

| answer block                | meaning                            |
|-----------------------------|------------------------------------|
| `search[words]`             | the verb and its text              |
| `search[a] || search[b]`    | a fault: a turn has one action     |
| anything else               | a fault, the turn is spent         |

Verbs count without regard to case. The text reaches from the first `[` to the last `]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.envs.common import SEPARATOR, ReadAnswer, read_answer
from heedful.types import Tool

_SEVERAL = re.compile(rf"\]\s*{re.escape(SEPARATOR)}")


@dataclass(frozen=True, slots=True)
class ReadAction:
    """What a reply asks for. With a fault, verb and text are empty."""

    verb: str
    text: str
    read: ReadAnswer


def read_action(reply: str, verbs: Sequence[str], longest: int, tools: Sequence[Tool] = ()) -> ReadAction:
    """The action of a reply, or what is wrong with it. `longest`: most characters of the whole action."""
    read = read_answer(reply, longest, tools)
    if read.fault:
        return ReadAction("", "", read)
    found = re.fullmatch(rf"({'|'.join(verbs)})\s*\[(.*)\]", read.text, re.IGNORECASE | re.DOTALL)
    text = " ".join(found[2].split()) if found else ""
    if _SEVERAL.search(read.text):
        fault = ("there is more than one action, and a turn has one", "several actions")
    elif found is None:
        fault = (f"the answer is neither {' nor '.join(f'{verb}[...]' for verb in verbs)}", "unknown action")
    elif not text:
        fault = (f"there is nothing between the brackets of {found[1].lower()}[]", "empty action")
    else:
        return ReadAction(found[1].lower(), text, read)
    return ReadAction("", "", ReadAnswer("", *fault))
