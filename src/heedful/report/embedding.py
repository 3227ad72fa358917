"""What a page carries for its script: text that came from models and environments, as inert JSON.

Promise: nothing embedded can end its script element or become markup. No page grows beyond its budget, and what was cut
says how much is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TypeVar

from markupsafe import Markup

T = TypeVar("T")


def inert_json(content: object) -> Markup:
    """JSON that is safe inside a `<script type="application/json">`, whatever its texts hold.

    NaN and infinities, which JSON does not know, become texts.
    """
    text = json.dumps(_finite(content), separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _finite(content: object) -> object:
    if isinstance(content, float):
        return content if math.isfinite(content) else str(content)
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content


def shortened(text: str, most: int, keep_end: bool = False) -> str:
    """At most about `most` characters: the beginning, or the end where that matters."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    note = f"[{left_out:,} characters left out]"
    return f"{note} … {text[-most:]}" if keep_end else f"{text[:most]} … {note}"


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` items, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[-1]]
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]
