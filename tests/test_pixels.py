"""Pictures of strangers: decoded in the size by which they were admitted, or refused in a sentence, in little room."""

from __future__ import annotations

import random
import struct
import zlib
from contextlib import suppress

import pytest

pytest.importorskip("PIL", reason="pictures are decoded with Pillow: install heedful[vision]")

from heedful.envs.transport.images import image_of
from heedful.pixels import decoded


def chunk(name: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def header(width: int = 8, height: int = 8, depth: int = 8, kind: int = 2) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))


BEGIN = b"\x89PNG\r\n\x1a\n" + header()
ROWS = chunk(b"IDAT", zlib.compress((b"\0" + b"\1" * 24) * 8))
MUCH = zlib.compress(bytes(20 << 20), 9)
FRAME = struct.pack(">IIIIIHHBB", 0, 60_000, 60_000, 0, 0, 1, 1, 0, 0)

HOSTILE = {
    "a second header, as large as memory": BEGIN + header(60_000, 60_000) + ROWS,
    "a second header, just below what Pillow warns of": BEGIN + header(9_000, 9_000) + ROWS,
    "a second header, smaller": BEGIN + header(2, 2) + ROWS,
    "no rows": BEGIN + chunk(b"IEND"),
    "half of the rows": BEGIN + ROWS[:14],
    "an unknown depth": BEGIN[:8] + header(depth=3, kind=9) + ROWS,
    "a wrong checksum": BEGIN[:-1] + b"x" + ROWS,
    "a chunk of 2 GiB": BEGIN + b"\x80\0\0\0tEXt",
    "a chunk without a name": BEGIN + chunk(b"\0\0\0\0") + ROWS,
}

BESIDE = {
    "a text that unpacks to much": chunk(b"zTXt", b"a\0\0" + MUCH),
    "a profile that unpacks to much": chunk(b"iCCP", b"a\0\0" + MUCH),
    "a frame beyond the picture": chunk(b"acTL", struct.pack(">II", 2, 0)) + chunk(b"fcTL", FRAME),
    "chunks too short for Pillow": b"".join(
        chunk(name, content)
        for name in (b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"tRNS", b"eXIf")
        for content in (b"", b"x")
    ),
}
"""Chunks that no colour depends on."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_picture_is_refused_in_a_sentence(name: str) -> None:
    png = HOSTILE[name]
    assert image_of(png).width == 8  # its first chunk alone is no reason to refuse it
    with pytest.raises(ValueError, match=r"^Expected a picture in a PNG file that can be read, found "):
        decoded(png)


@pytest.mark.parametrize("name", BESIDE)
def test_what_no_colour_depends_on_is_not_read(name: str) -> None:
    plain = BEGIN + ROWS + chunk(b"IEND")
    for png in (BEGIN + BESIDE[name] + ROWS, BEGIN + ROWS + BESIDE[name] + chunk(b"IEND")):
        assert decoded(png).tobytes() == decoded(plain).tobytes()


def test_a_picture_of_random_chunks_is_read_or_refused_in_a_sentence() -> None:
    rng, names = random.Random(0), [b"PLTE", b"IDAT", b"IEND", b"IHDR", b"tRNS", b"cHRM", b"fdAT", b"QQQQ", b"\xff" * 4]
    for _ in range(400):
        kind, depth = rng.choice((0, 2, 3, 4, 6, 5)), rng.choice((1, 2, 4, 8, 16, 3))
        random_chunks = [chunk(rng.choice(names), rng.randbytes(rng.randrange(20))) for _ in range(rng.randrange(3))]
        rows = chunk(b"IDAT", zlib.compress(rng.randbytes(rng.choice((0, 9, 400)))))
        png = BEGIN[:8] + header(depth=depth, kind=kind) + b"".join([*random_chunks, rows, rows[: rng.randrange(99)]])
        with suppress(ValueError):  # no other error, whatever the chunks are
            decoded(png)


def test_a_picture_of_the_largest_size_is_read() -> None:
    rows = chunk(b"IDAT", zlib.compress(bytes(2048 * (1 + 8 * 2048)), 1))
    assert decoded(BEGIN[:8] + header(2048, 2048, depth=16, kind=6) + rows + chunk(b"IEND")).size == (2048, 2048)
    assert decoded(BEGIN + ROWS + chunk(b"IEND")).getpixel((7, 7)) == (1, 1, 1)


def test_grey_of_sixteen_bits_keeps_its_shades() -> None:
    shades = (0, 255, 256, 4096, 30_000, 65_279, 65_535)
    rows = chunk(b"IDAT", zlib.compress(b"\0" + struct.pack(">7H", *shades)))
    picture = decoded(BEGIN[:8] + header(7, 1, depth=16, kind=0) + rows + chunk(b"IEND"))
    assert [picture.getpixel((place, 0)) for place in range(7)] == [(shade >> 8,) * 3 for shade in shades]
