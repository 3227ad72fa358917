"""What a page carries for its script: text that came from models and environments, packed.

Promise: nothing embedded can end its script element or become markup. No page grows beyond its budget, and what was cut
says how much is left out.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from heedful.types import Image, Trajectory

T = TypeVar("T")

PICTURE_BUDGET = 1_500_000
"""Bytes of all embedded files, as text."""
LONGEST_WORDS = 1000
"""Most characters of the words of a picture."""


def packed(content: object) -> str:
    """JSON, compressed, as letters and digits (base64): no text in it can end its script element or become markup.

    NaN and infinities, which JSON does not know, become texts. The same content gives the same letters.
    """
    try:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(finite(content), separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def unpacked(text: str) -> Any:
    """The content again, as the page's script reads it."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def finite(content: object) -> object:
    """The same content, NaN and infinities as texts."""
    if isinstance(content, float):
        return content if math.isfinite(content) else str(content)
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
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


def embedded_pictures(
    trajectories: Iterable[Trajectory], others: Iterable[Image] = (), budget: int = PICTURE_BUDGET
) -> dict[str, dict[str, object]]:
    """The pictures of trajectories, and then of other places.

    Digest -> `width`, `height`, `alt` (the picture in words, else the state before), and `src` within the budget."""
    found: dict[str, dict[str, object]] = {}
    for image, state in (*_with_states(trajectories), *((image, "") for image in others)):
        digest = image.digest
        if digest in found:
            continue
        alt = shortened(image.alt or state, LONGEST_WORDS)
        found[digest] = {"width": image.width, "height": image.height, "alt": alt}
        size = -(-len(image.png) // 3) * 4
        if size <= budget:
            budget -= size
            found[digest]["src"] = f"data:image/png;base64,{base64.b64encode(image.png).decode()}"
    return found


def _with_states(trajectories: Iterable[Trajectory]) -> Iterator[tuple[Image, str]]:
    """Every picture, and the state that the turn before has reported."""
    for trajectory in trajectories:
        state = ""
        for turn in trajectory.turns:
            # A restart shows earlier pictures as well. Only the last one shows the newest state.
            *earlier, newest = turn.reply.prompt.images or (None,)
            yield from ((image, "") for image in earlier if image is not None)
            if newest is not None:
                yield newest, state
            state = turn.state
