"""Pictures as a check compares them: by their pixels, since equal pixels can be compressed into different files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from heedful.pixels import decoded, need_pillow
from heedful.types import Image, Observation


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of one picture."""

    digest: str
    """Of size and pixels. Equal pictures have equal ones, however they were compressed."""
    fault: str = ""
    """Why the file cannot be read. Empty if it can."""
    plain: bool = False
    """All pixels have one colour."""


def seen(image: Image) -> Look:
    """The picture as a viewer shows it. Raises ImportError, a sentence, without Pillow."""
    need_pillow()
    return _seen(image.png)


def appearance(observation: Observation) -> tuple[str, ...]:
    """What an observation shows: its text, and the digests of its pictures."""
    return observation.text, *(seen(image).digest for image in observation.images)


@lru_cache(maxsize=4096)
def _seen(png: bytes) -> Look:
    try:
        pixels = decoded(png)
    except ValueError as error:
        return Look(f"unreadable {hashlib.sha256(png).hexdigest()[:16]}", fault=str(error.__cause__))
    size = f"{pixels.width} x {pixels.height}"
    digest = hashlib.sha256(size.encode() + pixels.tobytes()).hexdigest()[:16]
    return Look(f"{size} pixels {digest}", plain=pixels.getcolors(1) is not None)
