"""Models that see, torch-free: their settings, and which ids stand for a picture in a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from heedful.boundary import Natural, settings
from heedful.types import Image, Message


@settings
class VisionConfig:
    """How a model that sees is trained, and how large its pictures are to it."""

    tower: Literal["frozen", "trained"] = "frozen"
    """The weights that see: they stay as they are, or are trained with the others. LoRA never trains them."""
    least_pixels: Natural = 0
    """Smaller pictures are enlarged to it, for models that read pictures of any size (Qwen). 0 = as in its folder."""
    most_pixels: Natural = 0
    """Larger pictures are reduced to it. 0 = as in the model's folder."""

    def __post_init__(self) -> None:
        if 0 < self.most_pixels < self.least_pixels:
            raise ValueError(
                f"vision.most_pixels must be at least vision.least_pixels ({self.least_pixels}), found "
                f"{self.most_pixels}"
            )


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


def refuse_images(messages: Sequence[Message], reader: str) -> None:
    """Raise ValueError where a message holds a picture. `reader`: what would read the messages, as a noun."""
    images = [image for message in messages for image in message.images]
    if not images:
        return
    many = f"{len(images)} pictures" if len(images) > 1 else "a picture"
    raise ValueError(
        f"Expected observations of text alone for {reader}, found {many} of {images[0].width} x {images[0].height} "
        "pixels. Give a model that sees (a vision-language model, or the seedling of a preset such as "
        "frozen_lake_image), or choose an observation in text, such as --env.observation both."
    )
