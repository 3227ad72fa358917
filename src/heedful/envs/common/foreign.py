"""Foreign text in a prompt: passages, pages and messages that neither heedful nor the agent wrote.

A tag or a special token of a chat template in it could end a turn, or speak for somebody else. So the characters that
such tokens are made of become full stops, as in the few characters of a reply that are repeated to an agent.
"""

from __future__ import annotations

import re

_MARKS = re.compile(r"[<>|\[\]{}\uff5c\uff1c\uff1e\u2581]")
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff"
    "\ufff0-\ufffb\U000e0000-\U000e0fff]+"
)


def harmless(text: str) -> str:
    """Foreign text on one line, without marks of chat templates, controls, hidden characters and lone surrogates."""
    return " ".join(_HIDDEN.sub(" ", _MARKS.sub(".", text)).split())


def cut_at_word(text: str, most: int) -> str:
    """The beginning of a text, at most `most` characters, to the end of a word. ` ...` follows where there is more."""
    if len(text) <= most:
        return text
    whole = text[: most + 1].rpartition(" ")[0] or text[:most]
    return f"{whole} ..."
