"""Pictures of observations: what may be one, and the form in which they travel. Standard library only.

A picture is checked by the header of its PNG file. Nothing is decompressed here, so a hostile file costs no memory.
"""

from __future__ import annotations

import base64
import binascii
import reprlib

from heedful.types import Image

MOST_IMAGES = 8
"""Most pictures of one observation."""
LARGEST_IMAGE = 4 * 2**20
"""Bytes of one PNG file."""
LARGEST_SIDE = 2048
"""Pixels."""
LONGEST_ALT = 10_000
"""Characters."""

IMAGES_WANTED = (
    f"a tuple of at most {MOST_IMAGES} heedful.types.Image, each a PNG file of at most {LARGEST_IMAGE // 2**20} MiB "
    f"and {LARGEST_SIDE:,} pixels a side, with the size that its header states"
)

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BEGINS = _SIGNATURE + (13).to_bytes(4, "big") + b"IHDR"
_HEADER = len(_BEGINS) + 13 + 4
"""Bytes of the signature and the whole first chunk."""


def png_size(png: bytes) -> tuple[int, int] | None:
    """Width and height in the header of a PNG file, in pixels. `None` where it is no PNG file."""
    if len(png) < _HEADER or not png.startswith(_BEGINS):
        return None
    at = len(_BEGINS)
    return int.from_bytes(png[at : at + 4], "big"), int.from_bytes(png[at + 4 : at + 8], "big")


def image_of(png: bytes, alt: str = "") -> Image:
    """The picture in a PNG file. Raises ValueError for one that no observation may hold."""
    size = png_size(png)
    image = Image(png, *(size or (0, 0)), alt)
    fault = image_fault(image)
    if fault:
        raise ValueError(f"Expected {IMAGES_WANTED.partition('each ')[2]}, found {fault}.")
    return image


def images_fault(images: object) -> str:
    """What is wrong with the pictures of an observation. Empty if nothing is."""
    if not isinstance(images, tuple):
        return f"{_brief(images)}, not a tuple"
    if len(images) > MOST_IMAGES:
        return f"{len(images)} of them"
    faults = (image_fault(image) for image in images)
    return next((fault for fault in faults if fault), "")


def image_fault(image: object) -> str:
    """What is wrong with one picture. Empty if nothing is."""
    if not isinstance(image, Image):
        return f"{_brief(image)}, not an Image"
    if not isinstance(image.png, bytes) or not isinstance(image.alt, str) or len(image.alt) > LONGEST_ALT:
        return f"an Image without bytes, or with an `alt` that is no text of at most {LONGEST_ALT:,} characters"
    if len(image.png) > LARGEST_IMAGE:
        return f"a file of {len(image.png):,} bytes"
    size = png_size(image.png)
    if size is None:
        return f"no PNG file, but {_brief(image.png[:12])}"
    if size != (image.width, image.height):
        return f"{image.width} x {image.height} pixels stated, but {size[0]} x {size[1]} in the header of the file"
    if not all(0 < side <= LARGEST_SIDE for side in size):
        return f"{size[0]} x {size[1]} pixels"
    return ""


def image_tree(image: Image) -> dict[str, object]:
    """The picture as JSON. `read_image` reads it back equal."""
    tree = {"png": base64.b64encode(image.png).decode(), "width": image.width, "height": image.height}
    return {**tree, "alt": image.alt} if image.alt else tree


def read_image(tree: object) -> Image:
    """The picture in JSON of a stranger. Raises ValueError."""
    written = tree.get("png") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or not isinstance(written, str):
        raise ValueError(f"Expected a picture with its `png` in base64, found {_brief(tree)}.")
    width, height, alt = (tree.get(name) for name in ("width", "height", "alt"))
    if len(written) > -(-LARGEST_IMAGE // 3) * 4:
        raise ValueError(f"Expected a picture of at most {LARGEST_IMAGE:,} bytes, found {len(written):,} of base64.")
    try:
        png = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"Expected the `png` of a picture in base64, found {_brief(written)} ({error}).") from error
    if type(width) is not int or type(height) is not int:
        raise ValueError(f"Expected `width` and `height` of a picture as whole numbers, found {_brief(tree)}.")
    image = Image(png, width, height, "" if alt is None else alt)
    fault = image_fault(image)
    if fault:
        raise ValueError(f"Expected a picture as {IMAGES_WANTED.partition('each ')[2]}, found {fault}.")
    return image


def read_images(trees: list[object]) -> tuple[Image, ...]:
    """The pictures of an observation in JSON of a stranger. Raises ValueError."""
    if len(trees) > MOST_IMAGES:
        raise ValueError(f"Expected at most {MOST_IMAGES} pictures in one observation, found {len(trees)}.")
    return tuple(map(read_image, trees))


def _brief(value: object) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
