"""What environments on a board share: the ways in which an observation shows the state."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from heedful.envs.transport.images import LARGEST_SIDE

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
