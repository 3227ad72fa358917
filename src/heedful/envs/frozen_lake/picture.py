"""The frozen lake as a picture."""

from __future__ import annotations

from heedful.envs.common.pictures import Colour, Palette, Shapes

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

_ICE: Shapes = (("rectangle", _CRACK, (0, 0, 1, 1 / 16)), ("rectangle", _CRACK, (0, 0, 1 / 16, 1)))
_HOLE: Shapes = (*_ICE, ("ellipse", _WATER, (0.12, 0.22, 0.94, 0.88)))
_GOAL: Shapes = (
    *_ICE,
    ("rectangle", _POLE, (0.24, 0.12, 0.36, 0.94)),
    ("polygon", _PENNANT, (0.36, 0.14, 0.92, 0.36, 0.36, 0.60)),
)
_FIGURE: Shapes = (
    *_ICE,
    ("ellipse", _PLAYER, (0.36, 0.12, 0.70, 0.46)),
    ("polygon", _PLAYER, (0.44, 0.44, 0.62, 0.44, 0.82, 0.92, 0.24, 0.92)),
)
_ARMS_UP: Shapes = (
    *_ICE,
    ("ellipse", _WINNER, (0.38, 0.14, 0.68, 0.44)),
    ("polygon", _WINNER, (0.10, 0.16, 0.22, 0.10, 0.53, 0.50, 0.84, 0.10, 0.96, 0.16, 0.62, 0.66)),
    ("polygon", _WINNER, (0.10, 0.16, 0.53, 0.46, 0.62, 0.94, 0.44, 0.94, 0.44, 0.66)),
)
_CROSS: Shapes = (
    *_HOLE,
    ("line", _SUNK, (0.28, 0.32, 0.78, 0.80, 0.16)),
    ("line", _SUNK, (0.78, 0.32, 0.28, 0.80, 0.16)),
)

PALETTE = Palette(ICE, {"_": _ICE, "O": _HOLE, "G": _GOAL, "P": _FIGURE, "V": _ARMS_UP, "X": _CROSS})
