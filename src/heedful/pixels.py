"""The colours of a picture, and the id under which models read it. Pillow is imported when a picture is decoded."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image as Pixels

_SIGNATURE = 8
"""Bytes before the first chunk of a PNG file."""
_ANCILLARY = 32
"""The bit in the first letter of a chunk's name that says that a picture can be shown without the chunk."""


def decoded(png: bytes) -> Pixels:
    """The colours in a PNG file, without transparency. Raises ValueError for a file that cannot be read."""
    need_pillow()
    from PIL import Image as pillow

    try:
        with pillow.open(io.BytesIO(_plain(png)), formats=("PNG",)) as file:
            # By the size in the first chunk a picture is admitted. Pillow takes that of a later one.
            if file.size != (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")):
                raise ValueError(f"a second size, {file.size[0]} x {file.size[1]}")
            # Pillow makes every grey of 16 bits above 255 white.
            eight_bits = file.convert("I").point(lambda grey: grey / 256).convert("L") if file.mode[0] == "I" else file
            return eight_bits.convert("RGB")
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise ValueError(
            f"Expected a picture in a PNG file that can be read, found {type(error).__name__}: {error}. "
            "If an environment shows it, `heedful check-env` says where."
        ) from error


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The name of each chunk of a PNG file and the whole chunk, in order, as far as they can be read."""
    at = _SIGNATURE
    while at + 8 <= len(png):
        end = at + 12 + int.from_bytes(png[at : at + 4], "big")
        yield png[at + 4 : at + 8], png[at:end]
        at = end


def damage(png: bytes) -> str:
    """Where a PNG file is cut or changed, by the checksums of the chunks that colours depend on. Empty if nowhere.

    Nothing is decompressed, so a hostile file costs no memory.
    """
    last = b""
    for last, whole in chunks(png):
        critical = not last[0] & _ANCILLARY
        if critical and zlib.crc32(whole[4:-4]) != int.from_bytes(whole[-4:], "big"):
            return f"a PNG file that was cut or changed in its chunk {last!r}"
    return "" if last == b"IEND" else "a PNG file that was cut before its last chunk"


def _plain(png: bytes) -> bytes:
    """The file without the chunks that no colour depends on: profiles, texts, times and frames.

    Pillow reads them, too. A hostile one takes much memory, or ends in an error of any class.
    """
    critical = (whole for name, whole in chunks(png) if not name[0] & _ANCILLARY)
    return b"".join((png[:_SIGNATURE], *critical))


def pixels_hash(pixels: Pixels) -> bytes:
    """The SHA-256 of the size and the colours. Files of equal colours have the same, whatever wrote them."""
    size = b"".join(side.to_bytes(4, "big") for side in pixels.size)
    return hashlib.sha256(size + pixels.tobytes()).digest()


def picture_id(pixels_hash: bytes) -> int:
    """The id of a picture in rows of token ids: a negative number, so it is no token of any vocabulary.

    All places of one picture have this id. So rows that differ in a picture differ in their ids. A long run shows
    a hundred thousand pictures: of 62 bits, two of them are equal in one of 10^9 such runs, of 31 bits in most.
    """
    return -1 - (int.from_bytes(pixels_hash[:8], "big") >> 2)


@lru_cache(maxsize=1)
def need_pillow() -> None:
    """Raise ImportError, a sentence, where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Pictures need Pillow, which cannot be imported ({error}). Install it with pip install 'heedful[vision]', "
            "or choose an observation in text, such as --env.observation both."
        ) from error
