"""A room of Sokoban as a picture."""

from __future__ import annotations

from heedful.envs.common.pictures import Brush, Colour, Palette, draw_board
from heedful.types import Image

FLOOR: Colour = (238, 230, 212)
"""The colour of most pixels inside the walls."""
_JOINT: Colour = (214, 204, 182)
_BRICK: Colour = (104, 62, 52)
_MORTAR: Colour = (60, 36, 32)
_TARGET: Colour = (36, 104, 208)
_CRATE: Colour = (214, 142, 44)
_PLANK: Colour = (122, 72, 16)
_DONE: Colour = (40, 148, 84)
_PLAYER: Colour = (206, 44, 40)
_ON_TARGET: Colour = (146, 62, 190)

LEGEND = (
    "In the picture, dark bricks are walls, the red figure is you, a yellow crate with a cross is a box, a blue ring "
    "is a target, a green crate with a ring is a box on a target and the purple figure is you on a target."
)


def room_picture(grid: str, cell: int) -> Image:
    """The picture of a grid of the room. `cell`: pixels of a side of one cell."""
    return draw_board(grid, cell, _PALETTE)


def _floor(brush: Brush) -> None:
    brush.rectangle((0, 0), (1, 1 / 16), _JOINT)
    brush.rectangle((0, 0), (1 / 16, 1), _JOINT)


def _wall(brush: Brush) -> None:
    brush.rectangle((0, 0), (1, 1), _BRICK)
    for top in (0, 0.5):
        brush.rectangle((0, top), (1, top + 0.08), _MORTAR)
    brush.rectangle((0.46, 0), (0.54, 0.5), _MORTAR)
    brush.rectangle((0, 0.5), (0.08, 1), _MORTAR)


def _ring(brush: Brush, ground: Colour, colour: Colour, edge: float) -> None:
    brush.ellipse((edge, edge), (1.06 - edge, 1.06 - edge), colour)
    brush.ellipse((edge + 0.15, edge + 0.15), (0.91 - edge, 0.91 - edge), ground)


def _target(brush: Brush) -> None:
    _floor(brush)
    _ring(brush, FLOOR, _TARGET, 0.16)


def _box(brush: Brush) -> None:
    _floor(brush)
    brush.rectangle((0.10, 0.10), (0.96, 0.96), _PLANK)
    brush.rectangle((0.20, 0.20), (0.86, 0.86), _CRATE)
    brush.line((0.20, 0.20), (0.86, 0.86), 0.12, _PLANK)
    brush.line((0.86, 0.20), (0.20, 0.86), 0.12, _PLANK)


def _box_on_target(brush: Brush) -> None:
    _floor(brush)
    brush.rectangle((0.10, 0.10), (0.96, 0.96), _DONE)
    _ring(brush, _DONE, FLOOR, 0.22)


def _figure(brush: Brush, colour: Colour) -> None:
    brush.ellipse((0.36, 0.12), (0.70, 0.46), colour)
    brush.polygon(((0.44, 0.44), (0.62, 0.44), (0.82, 0.92), (0.24, 0.92)), colour)


def _player(brush: Brush) -> None:
    _floor(brush)
    _figure(brush, _PLAYER)


def _player_on_target(brush: Brush) -> None:
    _floor(brush)
    _ring(brush, FLOOR, _TARGET, 0.06)
    brush.ellipse((0.39, 0.24), (0.67, 0.50), _ON_TARGET)
    brush.polygon(((0.46, 0.46), (0.60, 0.46), (0.74, 0.82), (0.32, 0.82)), _ON_TARGET)


_PALETTE = Palette(
    FLOOR,
    {
        "#": _wall,
        "_": _floor,
        "O": _target,
        "X": _box,
        "*": _box_on_target,
        "P": _player,
        "S": _player_on_target,
    },
)
