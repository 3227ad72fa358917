"""Boards as pictures: every symbol of the state has a shape and a colour of its own, and equal boards equal pixels.

A tile is painted at four times its size and averaged down. Pillow paints and writes the file. It is imported when a
picture is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Interval

from heedful.envs.transport.images import LARGEST_SIDE, image_of
from heedful.pixels import need_pillow
from heedful.types import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Pixels

Colour = tuple[int, int, int]
Point = tuple[float, float]

_TIMES = 4
"""A tile is painted this many times larger."""


class Brush:
    """Paints one tile. Coordinates are shares of the cell, from 0 at the top left to 1."""

    def __init__(self, cell: int, ground: Colour) -> None:
        from PIL import Image as pillow
        from PIL import ImageDraw

        self._side = cell * _TIMES
        self._pixels = pillow.new("RGB", (self._side, self._side), ground)
        self._draw = ImageDraw.Draw(self._pixels)

    def rectangle(self, begin: Point, end: Point, colour: Colour) -> None:
        self._draw.rectangle(self._box(begin, end), fill=colour)

    def ellipse(self, begin: Point, end: Point, colour: Colour) -> None:
        self._draw.ellipse(self._box(begin, end), fill=colour)

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        self._draw.polygon([(self._at(x), self._at(y)) for x, y in points], fill=colour)

    def line(self, begin: Point, end: Point, width: float, colour: Colour) -> None:
        ends = [(self._at(x), self._at(y)) for x, y in (begin, end)]
        self._draw.line(ends, fill=colour, width=max(1, self._at(width)))

    def tile(self) -> Pixels:
        """The finished tile, in the size of the cell."""
        return self._pixels.reduce(_TIMES)

    def _at(self, share: float) -> int:
        return round(share * self._side)

    def _box(self, begin: Point, end: Point) -> tuple[int, int, int, int]:
        # Pillow counts the last pixel of a box to it.
        (left, top), (right, bottom) = begin, end
        return self._at(left), self._at(top), self._at(right) - 1, self._at(bottom) - 1


Paint = Callable[[Brush], None]


@dataclass(frozen=True, slots=True, eq=False)
class Palette:
    """How each symbol of a board is painted, on a ground of one colour."""

    ground: Colour
    paints: Mapping[str, Paint]


@lru_cache(maxsize=4096)  # members of a group, and baselines, come to the same boards again and again
def draw_board(grid: str, cell: int, palette: Palette) -> Image:
    """The picture of a grid of symbols, one row per line. `cell`: pixels of a side. The text is its `alt`."""
    need_pillow()
    from PIL import Image as pillow

    rows = grid.split("\n")
    pixels = pillow.new("RGB", (len(rows[0]) * cell, len(rows) * cell))
    for down, row in enumerate(rows):
        for right, symbol in enumerate(row):
            pixels.paste(_tile(palette, symbol, cell), (right * cell, down * cell))
    file = io.BytesIO()
    pixels.save(file, "PNG")
    return image_of(file.getvalue(), alt=grid)


@lru_cache(maxsize=256)
def _tile(palette: Palette, symbol: str, cell: int) -> Pixels:
    brush = Brush(cell, palette.ground)
    palette.paints[symbol](brush)
    return brush.tile()


ObservationForm = Literal["grid", "coordinates", "both", "image", "image_and_text"]
TextForm = Literal["", "grid", "coordinates", "both"]

Cell = Annotated[int, Interval(ge=4, le=256)]
"""Pixels of a cell. Below the least the symbols cannot be told apart."""


def text_form(form: ObservationForm) -> TextForm:
    """What the text of an observation shows of the state. Empty: nothing, the picture shows it."""
    if form == "image":
        return ""
    return "both" if form == "image_and_text" else form


def has_picture(form: ObservationForm) -> bool:
    return form in ("image", "image_and_text")


def check_form(env: str, form: ObservationForm, cell: int, size: int) -> None:
    """Raise ValueError for cells that make no picture. `size`: rows of the board."""
    if has_picture(form) and size * cell > LARGEST_SIDE:
        raise ValueError(
            f"{env}: a picture may have {LARGEST_SIDE:,} pixels a side, but {size} rows of cell {cell} have "
            f"{size * cell:,}. Lower cell or size."
        )
