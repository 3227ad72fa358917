"""From pixels to what a vision tower reads, and to the ids of a picture in a row.

The processor of pictures in the model's folder makes the tower's inputs. The text that families write around and
between the parts of a picture is written here, since their whole processors need torchvision for their videos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.models.vision.pictures import PLACE, Layout

if TYPE_CHECKING:
    from PIL.Image import Image as Pixels

TILED = ("idefics3", "smolvlm")
"""Families that may split a picture into tiles, and name the place of each in text."""


@dataclass(frozen=True, slots=True)
class Made:
    """What the vision tower reads of one or more pictures, and the rows and columns of tiles of the first one."""

    values: dict[str, torch.Tensor]
    tiles: tuple[int, int]

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal for pictures that take equally many ids in equal order."""
        grid = self.values.get("image_grid_thw")
        shapes = sorted((name, tuple(value.shape)) for name, value in self.values.items())
        return (*shapes, self.tiles, None if grid is None else tuple(grid[0].tolist()))


class PictureProcessor:
    """Makes the inputs of the vision tower, and says which ids a picture takes in a row."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, processor: Any) -> None:
        """`processor`: transformers' processor of pictures for this model."""
        config: Any = model.config
        self.placeholder = int(config.image_token_id)
        self.placeholder_text = str(tokenizer.convert_ids_to_tokens(self.placeholder))
        """What the chat template writes for a picture."""
        self.processor = processor
        self._family = str(config.model_type)
        self._tokenizer: Any = tokenizer

    def made(self, pixels: Sequence[Pixels]) -> Made:
        """The inputs of the vision tower for the pictures of one row. Raises ValueError for a picture that is lost."""
        tiled = self._family in TILED
        options = {"return_row_col_info": True} if tiled else {}
        images = [list(pixels)] if tiled else list(pixels)
        found = self.processor(images=images, return_tensors="pt", **options)
        values = {name: value for name, value in found.items() if torch.is_tensor(value)}
        rows, columns = (found[name][0][0] if tiled else 0 for name in ("rows", "cols"))
        if tiled and not bool(values["pixel_values"].flatten(2).any(2).all()) and len(pixels) == 1:
            raise ValueError(
                "Expected a picture with parts that differ from the model's mean colour, found one whose values are "
                "all 0 after normalisation: this model drops it without a word. Change the picture, or image_mean."
            )
        return Made(values, (int(rows), int(columns)))

    def layout(self, made: Made, features: int) -> Layout:
        """The ids of one picture with this many features, and its grid where positions have three axes."""
        one = self.placeholder_text
        if self._family == "internvl":
            begin, end = (getattr(self._tokenizer, f"{name}_image_token", None) for name in ("start", "end"))
            text = f"{begin or '<img>'}{one * features}{end or '</img>'}"
        elif self._family in TILED:
            text = _tiles(one, *made.tiles, features)
        else:
            text = one * features
        ids = self._tokenizer(text, add_special_tokens=False).input_ids
        grid = None
        if "image_grid_thw" in made.values:
            _, rows, columns = made.values["image_grid_thw"][0].tolist()
            merged = int(self.processor.merge_size)
            grid = rows // merged, columns // merged
        return tuple(PLACE if id == self.placeholder else id for id in ids), grid


def _tiles(one: str, rows: int, columns: int, features: int) -> str:
    """The text of a picture in tiles, each named by its place, and of the whole picture after them."""
    around = "<fake_token_around_image>"
    part = one * (features // (rows * columns + 1))
    lines = [
        "".join(f"{around}<row_{row + 1}_col_{column + 1}>{part}" for column in range(columns)) + "\n"
        for row in range(rows)
    ]
    return f"{''.join(lines)}{chr(10) if rows else ''}{around}<global-img>{part}{around}"
