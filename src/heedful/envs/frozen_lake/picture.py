"""The frozen lake as a picture."""

from __future__ import annotations

from heedful.envs.common.pictures import Brush, Colour, Palette, draw_board
from heedful.types import Image

ICE: Colour = (221, 236, 244)
"""The colour of most pixels."""
_CRACK: Colour = (186, 210, 224)
_WATER: Colour = (30, 46, 84)
_POLE: Colour = (104, 74, 48)
_PENNANT: Colour = (28, 150, 68)
_PLAYER: Colour = (206, 44, 40)
_WINNER: Colour = (236, 160, 20)
_SUNK: Colour = (176, 60, 196)

LEGEND = (
    "In the picture, the red figure is you, pale cells are ice, dark ovals are holes and the green pennant is the goal."
)


def lake_picture(grid: str, cell: int) -> Image:
    """The picture of a grid of the lake. `cell`: pixels of a side of one cell."""
    return draw_board(grid, cell, _PALETTE)


def _ice(brush: Brush) -> None:
    brush.rectangle((0, 0), (1, 1 / 16), _CRACK)
    brush.rectangle((0, 0), (1 / 16, 1), _CRACK)


def _hole(brush: Brush) -> None:
    _ice(brush)
    brush.ellipse((0.12, 0.22), (0.94, 0.88), _WATER)


def _goal(brush: Brush) -> None:
    _ice(brush)
    brush.rectangle((0.24, 0.12), (0.36, 0.94), _POLE)
    brush.polygon(((0.36, 0.14), (0.92, 0.36), (0.36, 0.60)), _PENNANT)


def _player(brush: Brush) -> None:
    _ice(brush)
    brush.ellipse((0.36, 0.12), (0.70, 0.46), _PLAYER)
    brush.polygon(((0.44, 0.44), (0.62, 0.44), (0.82, 0.92), (0.24, 0.92)), _PLAYER)


def _winner(brush: Brush) -> None:
    """The player on the goal: both arms are up."""
    _ice(brush)
    brush.ellipse((0.38, 0.14), (0.68, 0.44), _WINNER)
    brush.polygon(((0.10, 0.16), (0.22, 0.10), (0.53, 0.50), (0.84, 0.10), (0.96, 0.16), (0.62, 0.66)), _WINNER)
    brush.polygon(((0.10, 0.16), (0.53, 0.46), (0.62, 0.94), (0.44, 0.94), (0.44, 0.66)), _WINNER)


def _sunk(brush: Brush) -> None:
    """The player in a hole: a cross on the water."""
    _hole(brush)
    brush.line((0.28, 0.32), (0.78, 0.80), 0.16, _SUNK)
    brush.line((0.78, 0.32), (0.28, 0.80), 0.16, _SUNK)


_PALETTE = Palette(ICE, {"_": _ice, "O": _hole, "G": _goal, "P": _player, "V": _winner, "X": _sunk})
