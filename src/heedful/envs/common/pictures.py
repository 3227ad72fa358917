"""Boards as pictures: every symbol of the state has a shape and a colour of its own, and equal boards equal pixels.

A tile is painted at four times its size and averaged down. Pillow paints and writes the file. It is imported when a
picture is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from heedful.envs.transport.images import image_of
from heedful.pixels import need_pillow
from heedful.types import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Pixels

Colour = tuple[int, int, int]
Shapes: TypeAlias = tuple[tuple[str, Colour, tuple[float, ...]], ...]
"""(kind, colour, numbers) of each shape of a tile, from the lowest to the uppermost. Numbers are shares of the cell, x
before y, from 0 at the top left to 1. A `rectangle` or `ellipse` has two corners, a `polygon` its points, and a `line`
its two ends and its width."""

_TIMES = 4
"""A tile is painted this many times larger."""


@dataclass(frozen=True, slots=True, eq=False)
class Palette:
    """How each symbol of a board is painted, on a ground of one colour."""

    ground: Colour
    shapes: Mapping[str, Shapes]


@lru_cache(maxsize=4096)  # members of a group, and baselines, come to the same boards again and again
def draw_board(palette: Palette, grid: str, cell: int) -> Image:
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
    from PIL import Image as pillow
    from PIL import ImageDraw

    pixels = pillow.new("RGB", (cell * _TIMES, cell * _TIMES), palette.ground)
    brush = ImageDraw.Draw(pixels)
    for kind, colour, numbers in palette.shapes[symbol]:
        places = [round(number * cell * _TIMES) for number in numbers]
        if kind == "line":
            brush.line(places[:4], fill=colour, width=max(1, places[4]))
        elif kind == "polygon":
            brush.polygon(places, fill=colour)
        else:
            left, top, right, bottom = places
            # Pillow counts the last pixel of a box to it.
            getattr(brush, kind)((left, top, right - 1, bottom - 1), fill=colour)
    return pixels.reduce(_TIMES)
