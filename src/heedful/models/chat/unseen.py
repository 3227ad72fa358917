"""Pictures and models that read text alone: a picture is refused before anything is sampled, never left out."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.types import Message


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
