"""What rendering needs of a model that sees: which ids stand for a picture in a row. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from heedful.types import Image


class Shown(Protocol):
    """A picture as it stands in rows of ids."""

    @property
    def ids(self) -> tuple[int, ...]: ...


class Sight(Protocol):
    """The part of `models.vision.Vision` that rendering needs."""

    @property
    def placeholder(self) -> int:
        """The id that the chat template writes for a picture."""
        ...

    def show(self, image: Image) -> Shown: ...


def parts(content: str, images: Sequence[Image]) -> list[dict[str, str]]:
    """The content of a message as templates of models that see take it: the pictures, then the text."""
    return [*({"type": "image"} for _ in images), {"type": "text", "text": content}]


def with_pictures(ids: Sequence[int], images: Sequence[Image], sight: Sight, text: str) -> tuple[int, ...]:
    """The ids with each placeholder replaced by the ids of its picture. `text`: what was rendered, for the error.

    Raises ValueError where there is not one placeholder for each picture.
    """
    found = ids.count(sight.placeholder)
    if found != len(images):
        raise ValueError(
            f"Expected one placeholder for each of {len(images)} pictures in a rendered prompt, found {found} in "
            f"{text[-200:]!r}: either the chat template drops pictures, or a text holds a placeholder. Use a template "
            "that writes pictures in every role, and take placeholders out of the texts."
        )
    left = iter(images)
    runs = (sight.show(next(left)).ids if id == sight.placeholder else (id,) for id in ids)
    return tuple(id for run in runs for id in run)
