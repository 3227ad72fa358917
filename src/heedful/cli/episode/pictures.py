"""Pictures of an episode for a person: in colour in a terminal, in words in a pipe, and as a file.

A character of the terminal is two pixels: the upper one is its colour, the lower one the colour behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from heedful.storage import refuse_typed, write_whole
from heedful.types import Image

MOST_COLUMNS = 48
"""Characters of a picture's width: 8 and more for a cell of a small board."""


def show_pictures(images: Sequence[Image], console: Console) -> None:
    """Print each picture. Raises ValueError for a file that cannot be read, ImportError without Pillow."""
    coloured = console.is_terminal and console.color_system is not None and not console.no_color
    for image in images:
        if coloured:
            console.print(half_blocks(image, min(console.width, MOST_COLUMNS)))
        else:
            words = image.alt or f"[a picture of {image.width} x {image.height} pixels; --picture FILE writes it]"
            console.print(words, style="cyan", soft_wrap=True)


def write_pictures(images: Sequence[Image], file: Path) -> None:
    """Write the first picture to `file`, and others beside it: board.png, board-2.png, board-3.png."""
    for number, image in enumerate(images, start=1):
        place = file if number == 1 else file.with_stem(f"{file.stem}-{number}")
        refuse_typed(place, b"\x89PNG\r\n\x1a\n")
        write_whole(place, image.png)


def half_blocks(image: Image, columns: int) -> Text:
    """The picture as coloured characters, at most `columns` wide."""
    from heedful.pixels import decoded

    pixels = decoded(image.png)
    width = min(columns, pixels.width)
    height = max(1, round(pixels.height * width / pixels.width / 2)) * 2
    small = pixels.resize((width, height), resample=4)  # 4 = averages of boxes
    values = small.tobytes()
    text = Text(no_wrap=True)
    for top in range(0, height, 2):
        for left in range(width):
            upper, lower = (_colour(values, (row * width + left) * 3) for row in (top, top + 1))
            text.append("\N{UPPER HALF BLOCK}", Style(color=upper, bgcolor=lower))
        text.append("\n" if top + 2 < height else "")
    return text


def _colour(values: bytes, at: int) -> Color:
    return Color.from_rgb(*values[at : at + 3])
