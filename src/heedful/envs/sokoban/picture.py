"""A room of Sokoban as a picture."""

from __future__ import annotations

from heedful.envs.common.pictures import Colour, Palette, Shapes

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


def _ring(ground: Colour, colour: Colour, edge: float) -> Shapes:
    outer, inner = (edge, edge, 1.06 - edge, 1.06 - edge), (edge + 0.15, edge + 0.15, 0.91 - edge, 0.91 - edge)
    return ("ellipse", colour, outer), ("ellipse", ground, inner)


_FLOOR: Shapes = (("rectangle", _JOINT, (0, 0, 1, 1 / 16)), ("rectangle", _JOINT, (0, 0, 1 / 16, 1)))
_WALL: Shapes = (
    ("rectangle", _BRICK, (0, 0, 1, 1)),
    ("rectangle", _MORTAR, (0, 0, 1, 0.08)),
    ("rectangle", _MORTAR, (0, 0.5, 1, 0.58)),
    ("rectangle", _MORTAR, (0.46, 0, 0.54, 0.5)),
    ("rectangle", _MORTAR, (0, 0.5, 0.08, 1)),
)
_BOX: Shapes = (
    ("rectangle", _PLANK, (0.10, 0.10, 0.96, 0.96)),
    ("rectangle", _CRATE, (0.20, 0.20, 0.86, 0.86)),
    ("line", _PLANK, (0.20, 0.20, 0.86, 0.86, 0.12)),
    ("line", _PLANK, (0.86, 0.20, 0.20, 0.86, 0.12)),
)
_FIGURE: Shapes = (
    ("ellipse", _PLAYER, (0.36, 0.12, 0.70, 0.46)),
    ("polygon", _PLAYER, (0.44, 0.44, 0.62, 0.44, 0.82, 0.92, 0.24, 0.92)),
)
_SMALL_FIGURE: Shapes = (
    ("ellipse", _ON_TARGET, (0.39, 0.24, 0.67, 0.50)),
    ("polygon", _ON_TARGET, (0.46, 0.46, 0.60, 0.46, 0.74, 0.82, 0.32, 0.82)),
)

PALETTE = Palette(
    FLOOR,
    {
        "#": _WALL,
        "_": _FLOOR,
        "O": _FLOOR + _ring(FLOOR, _TARGET, 0.16),
        "X": _FLOOR + _BOX,
        "*": (*_FLOOR, ("rectangle", _DONE, (0.10, 0.10, 0.96, 0.96)), *_ring(_DONE, FLOOR, 0.22)),
        "P": _FLOOR + _FIGURE,
        "S": _FLOOR + _ring(FLOOR, _TARGET, 0.06) + _SMALL_FIGURE,
    },
)
