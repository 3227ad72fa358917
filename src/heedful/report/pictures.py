"""Pictures of the trajectories that a page shows: each file once, up to a budget, and the words of the others."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

from heedful.report.embedding import shortened
from heedful.types import Image, Trajectory

PICTURE_BUDGET = 1_500_000
"""Bytes of all embedded files, as text."""
LONGEST_WORDS = 1000
"""Most characters of the words of a picture."""


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
