"""Pictures of a TRL trainer: its pictures as files, and its own model as a reader of rows with pictures.

TRL calls its model with placeholders and pixels. heedful reads rows with ids of pictures (`models.vision`), on the same
model and only while it scores. Outside of that the model has no hook of heedful's.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import OutOfMemoryError

from heedful.models.forward.exactness import evaluating
from heedful.models.vision.probe import refuse_unless_exact
from heedful.models.vision.processing import PictureProcessor
from heedful.models.vision.vision import Vision, vision_of
from heedful.pixels import pixels_hash
from heedful.types import Image

if TYPE_CHECKING:
    from heedful.models.vision.pictures import Picture


def sees(trainer: Any) -> bool:
    """Whether the trainer's processor takes pictures."""
    return hasattr(trainer.processing_class, "image_processor")


def vision_in(trainer: Any, model: Any) -> Vision:
    """The vision of the trainer's model, made once and not attached.

    Raises ValueError for a model whose pictures heedful does not read exactly.
    """
    known = vision_of(model)
    if known is not None:
        return known
    processor = trainer.processing_class
    try:
        files = PictureProcessor(model, processor.tokenizer, processor.image_processor)
        vision = Vision(model, files, attach=False)
        with vision.attached():
            refuse_unless_exact(model, vision)
    except OutOfMemoryError:
        raise
    except (AttributeError, TypeError, LookupError, RuntimeError) as error:
        raise ValueError(
            f"heedful does not read the pictures of {type(model).__name__} ({type(error).__name__}: {error}); it reads "
            "those of Qwen2-VL to Qwen3-VL, Idefics3, SmolVLM, InternVL and LLaVA"
        ) from error
    vision.keep()
    return vision


@dataclass(frozen=True, slots=True)
class PausedSight:
    """What a reader of rows needs of a model that another trainer trains: no dropout, and nothing left on the model."""

    vision: Vision
    model: Any

    @property
    def placeholder(self) -> int:
        return self.vision.placeholder

    def show(self, image: Image) -> Picture:
        with evaluating(self.model):  # the first picture of a size goes through the tower
            return self.vision.show(image)


def pictures_in(prompts: Sequence[Any]) -> list[list[Any]]:
    """The pictures in the messages of each prompt, as TRL collects them."""
    return [[*_shown(prompt)] if isinstance(prompt, list) else [] for prompt in prompts]


def _shown(messages: Sequence[dict[str, Any]]) -> Iterable[Any]:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part.get("type") == "image" and part.get("image") is not None:
                yield part["image"]


def as_files(shown_B: Sequence[Sequence[Any] | None], processor: Any) -> list[tuple[tuple[Image, ...], str]]:
    """The pictures of each row as PNG files, or no files and the reason. Equal pictures are written once."""
    known: dict[bytes, Image] = {}
    found: list[tuple[tuple[Image, ...], str]] = []
    for shown in shown_B:
        why = next((reason for picture in shown or () if (reason := _obstacle(picture, processor))), "")
        images = () if why else tuple(_file(picture, known) for picture in shown or ())
        found.append((images, why))
    return found


def _obstacle(picture: Any, processor: Any) -> str:
    """Why a picture of TRL cannot be read as TRL's processor reads it. Empty if it can."""
    from PIL import Image as pillow

    if not isinstance(picture, pillow.Image):
        return f"pictures are read as PIL images, found {type(picture).__name__}: give the column `images` decoded"
    if picture.mode == "RGB":
        return ""
    if picture.has_transparency_data:
        return f"a picture has transparency (mode {picture.mode}), which processors fill differently: convert it to RGB"
    if not getattr(processor, "do_convert_rgb", False):
        return f"a picture has the mode {picture.mode}, and the processor does not convert it: convert it to RGB"
    return ""


def _file(picture: Any, known: dict[bytes, Image]) -> Image:
    pixels = picture if picture.mode == "RGB" else picture.convert("RGB")
    content = pixels_hash(pixels)
    if content not in known:
        file = io.BytesIO()
        pixels.save(file, "PNG", compress_level=1, icc_profile=None)
        known[content] = Image(file.getvalue(), *pixels.size)
    return known[content]
