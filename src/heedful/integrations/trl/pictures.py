"""Pictures of a TRL trainer: its pictures as files, and its own model as a reader of rows with pictures.

TRL calls its model with placeholders and pixels. heedful reads rows with ids of pictures (`models.vision`), on the same
model and only while it scores. Outside of that the model has no hook of heedful's.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from heedful.models.forward.exactness import evaluating
from heedful.models.vision.probe import refuse_unless_exact
from heedful.models.vision.processing import TILED, PictureProcessor
from heedful.models.vision.vision import Vision, vision_of
from heedful.pixels import decoded, pixels_hash
from heedful.types import Image

if TYPE_CHECKING:
    from heedful.models.vision.pictures import Picture


def sees(trainer: Any) -> bool:
    """Whether the trainer's processor takes pictures."""
    return hasattr(trainer.processing_class, "image_processor")


def bare_model(trainer: Any) -> Any:
    """The model without the wrappers of data parallelism and PEFT. PEFT adapters remain active."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def kinds_of(trainer: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Which ids of rows are placeholders of pictures, for models that ask for it."""
    model = bare_model(trainer)
    if "mm_token_type_ids" not in inspect.signature(type(model).forward).parameters:
        return {}
    return {"mm_token_type_ids": (ids == model.config.image_token_id).long()}


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

    def collapsed(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The ids with one placeholder for each picture, as a tokenizer decodes them."""
        return self.vision.collapsed(ids)

    def attached(self) -> AbstractContextManager[None]:
        """In this context the model reads ids of pictures."""
        return self.vision.attached()


def sight_of(trainer: Any) -> PausedSight:
    """How pictures stand in rows of the trainer's model. Its vision is made once, and not attached.

    Raises ValueError for a model whose pictures heedful does not read exactly, and for a processor without pictures.
    """
    model, processor = bare_model(trainer), trainer.processing_class
    known = vision_of(model)
    if known is not None:
        return PausedSight(known, model)
    try:
        files = PictureProcessor(model, processor.tokenizer, processor.image_processor)
        vision = Vision(model, files, attach=False)
        with vision.attached():
            refuse_unless_exact(model, vision)
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, TypeError, LookupError, RuntimeError) as error:
        raise ValueError(
            f"heedful does not read the pictures of {type(model).__name__} ({type(error).__name__}: {error}); it reads "
            "those of Qwen2-VL to Qwen3-VL, Idefics3, SmolVLM, InternVL and LLaVA"
        ) from error
    vision.keep()
    return PausedSight(vision, model)


def pixels_of(trainer: Any, images_B: Sequence[Sequence[Image]]) -> dict[str, Any]:
    """What TRL's learner and its engine take beside the ids of these rows: pixels, and how many pictures a row shows.

    It is what TRL makes of the pictures of a data set, with the trainer's own processor. Raises ValueError for a
    processor that cuts pictures into parts, where TRL would not know which part belongs to which row.
    """
    processor, device = trainer.processing_class.image_processor, trainer.accelerator.device
    model = bare_model(trainer)
    shown = [index for index, images in enumerate(images_B) if images]
    pixels = [[decoded(image.png) for image in images_B[index]] for index in shown]
    tiled = model.config.model_type in TILED
    made = processor(images=pixels if tiled else [one for row in pixels for one in row], return_tensors="pt")
    taken = inspect.signature(type(model).forward).parameters
    values = {name: made[name].to(device) for name in made if name in taken and torch.is_tensor(made[name])}
    if not tiled:
        many, held = sum(map(len, pixels)), values.get("image_grid_thw", values["pixel_values"])
        if len(held) != many:
            raise ValueError(
                f"Expected one entry of pixels for each picture, found {len(held)} for {many} from "
                f"{type(processor).__name__}: pictures that are cut into parts reach TRL's learner for "
                f"{', '.join(TILED)} only. Turn the parts off in the processor."
            )
        return {**values, "num_images": [len(images) for images in images_B]}
    # One entry for each row. A row without pictures has zeros, which these models skip.
    rows = torch.tensor(shown, device=device)
    padded = {
        name: value.new_zeros(len(images_B), *value.shape[1:]).index_copy(0, rows, value)
        for name, value in values.items()
    }
    return {**padded, "num_images": [1] * len(images_B)}


def pictures_in(prompts: Sequence[Any]) -> list[list[Any]]:
    """The pictures in the messages of each prompt, as TRL collects them."""
    return [
        [
            part["image"]
            for message in (prompt if isinstance(prompt, list) else ())
            for part in (message.get("content") if isinstance(message.get("content"), list) else ())
            if part.get("type") == "image" and part.get("image") is not None
        ]
        for prompt in prompts
    ]


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
