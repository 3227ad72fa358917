"""Pictures in a row of token ids: what the row is without them, and the row with other pictures.

The ids of a picture are negative and all equal. Text ids may stand between its parts, such as the marks of its tiles.
Text ids are at least 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

from heedful.types import Group, Image

Ids = tuple[int, ...]
Frame = tuple[int | None, ...]
"""Ids with a place, `None`, for each id of a picture."""
Shape = tuple[tuple[int, ...], tuple[Ids, ...]]
"""One picture: the lengths of its parts, and the text ids between them."""


def shows_pictures(groups: Iterable[Group]) -> bool:
    """Whether a prompt of these episodes holds a picture."""
    turns = (turn for group in groups for trajectory in group.trajectories for turn in trajectory.turns)
    return any(min(turn.reply.prompt.ids, default=0) < 0 for turn in turns)


def frame(ids: Ids) -> Frame:
    """The text of the ids, with a place for each id of a picture."""
    return tuple(None if one < 0 else one for one in ids)


def one_text(prompts_N: Sequence[Ids]) -> bool:
    """Whether the prompts differ in pictures alone."""
    return len({frame(prompt) for prompt in prompts_N}) == 1


def picture_ids(ids: Ids) -> Ids:
    """The ids of the pictures alone, in order."""
    return tuple(one for one in ids if one < 0)


def filled(text: Frame, pictures: Ids) -> Ids:
    """The text with these ids in its places."""
    rest = iter(pictures)
    return tuple(next(rest) if one is None else one for one in text)


def shapes(ids: Ids, images: Sequence[Image] = ()) -> tuple[Shape, ...]:
    """The shape of each picture in the ids of one prompt, in order.

    `images`: the pictures of the prompt, in order. They tell a picture that is shown twice in a row from one picture of
    several parts. Without them it counts as one.
    """
    edges = [0, *(place for place in range(1, len(ids)) if ids[place] != ids[place - 1]), len(ids)]
    runs = [(start, end) for start, end in pairwise(edges) if start < end and ids[start] < 0]  # of equal negative ids
    shown = [[*same] for _, same in groupby(runs, key=lambda run: ids[run[0]])]
    times = [len([*same]) for _, same in groupby(images)]
    if len(times) != len(shown):
        times = [1] * len(shown)
    return tuple(shape for parts, count in zip(shown, times, strict=True) for shape in _each(ids, parts, count))


def _each(ids: Ids, parts: list[tuple[int, int]], times: int) -> list[Shape]:
    """The shapes of one picture that is shown several times in a row."""
    if len(parts) == 1 and (parts[0][1] - parts[0][0]) % times == 0:
        return [(((parts[0][1] - parts[0][0]) // times,), ())] * times
    size = len(parts) // times if len(parts) % times == 0 else len(parts)
    return [
        (tuple(end - start for start, end in one), tuple(ids[end:start] for (_, end), (start, _) in pairwise(one)))
        for one in (parts[first : first + size] for first in range(0, len(parts), size))
    ]
