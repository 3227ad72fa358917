"""Pictures of observations: what may be one, and the form in which they travel. Standard library only.

A picture is checked by the header of its PNG file. Nothing is decompressed here, so a hostile file costs no memory.
"""

from __future__ import annotations

import base64
from typing import Any

from heedful.boundary.foreign_text import brief
from heedful.boundary.jsontext import expecting
from heedful.types import Image

MOST_IMAGES = 8
"""Most pictures of one observation."""
LARGEST_IMAGE = 4 * 2**20
"""Bytes of one PNG file."""
LARGEST_SIDE = 2048
"""Pixels."""

_FILE = (
    f"a PNG file of at most {LARGEST_IMAGE // 2**20} MiB and {LARGEST_SIDE:,} pixels a side, with the size that its "
    "header states"
)
IMAGES_WANTED = f"a tuple of at most {MOST_IMAGES} heedful.types.Image, each {_FILE}"

_BEGINS = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + b"IHDR"


def png_size(png: bytes) -> tuple[int, int] | None:
    """Width and height in the header of a PNG file, in pixels. `None` where it is no PNG file."""
    at = len(_BEGINS)
    if len(png) < at + 17 or not png.startswith(_BEGINS):
        return None
    return int.from_bytes(png[at : at + 4], "big"), int.from_bytes(png[at + 4 : at + 8], "big")


def image_of(png: bytes, alt: str = "") -> Image:
    """The picture in a PNG file. Raises ValueError for one that no observation may hold."""
    image = Image(png, *(png_size(png) or (0, 0)), alt)
    fault = image_fault(image)
    if fault:
        raise ValueError(f"Expected {_FILE}, found {fault}.")
    return image


def image_fault(image: object) -> str:
    """What is wrong with one picture. Empty if nothing is."""
    if not isinstance(image, Image):
        return f"{brief(image)}, not an Image"
    if not isinstance(image.png, bytes) or not isinstance(image.alt, str):
        return "an Image without bytes, or with an `alt` that is no text"
    if len(image.png) > LARGEST_IMAGE:
        return f"a file of {len(image.png):,} bytes"
    size = png_size(image.png)
    if size is None:
        return f"no PNG file, but {image.png[:12]!r}"
    if size != (image.width, image.height):
        return f"{image.width} x {image.height} pixels stated, but {size[0]} x {size[1]} in the header of the file"
    return "" if all(0 < side <= LARGEST_SIDE for side in size) else f"{size[0]} x {size[1]} pixels"


def image_tree(image: Image) -> dict[str, object]:
    """The picture as JSON. `read_image` reads it back equal."""
    tree = {"png": base64.b64encode(image.png).decode(), "width": image.width, "height": image.height}
    return {**tree, "alt": image.alt} if image.alt else tree


def read_image(tree: Any) -> Image:
    """The picture in JSON of a stranger. Raises ValueError."""
    with expecting("a picture with its `png` in base64"):
        png = base64.b64decode(tree["png"], validate=True)
    return image_of(png, tree.get("alt") or "")
