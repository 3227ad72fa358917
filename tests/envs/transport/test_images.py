"""Pictures over a border: what is read is what was written, and what is no picture is refused in a sentence."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest

from heedful.envs.common.wire import WireError, decode, encode, observation_tree, read_observation
from heedful.envs.transport.images import LARGEST_IMAGE, image_of, png_size
from heedful.types import Observation


def png(width: int = 2, height: int = 1, more: bytes = b"") -> bytes:
    """A PNG file with one colour, written by hand."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big")

    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 2, 0, 0, 0))
    rows = zlib.compress((b"\x00" + b"\x10\x20\x30" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


PICTURE = image_of(png(), alt="P_")


def test_an_observation_with_pictures_is_read_as_it_was_written() -> None:
    shown = Observation("look", "rules\nlook", "tool", (PICTURE, image_of(png(3, 4))))
    read = read_observation(decode(encode(observation_tree(shown))))
    assert read == shown
    assert [image.alt for image in read.images] == ["P_", ""]


def test_an_observation_of_text_is_written_as_it_always_was() -> None:
    assert encode(observation_tree(Observation("look", "rules"))) == b'{"text":"look","opening":"rules"}'


def test_equal_files_have_equal_digests_and_the_words_are_no_part_of_it() -> None:
    assert image_of(png(), alt="other words") == PICTURE
    assert image_of(png(), alt="other words").digest == PICTURE.digest
    assert image_of(png(2, 2)).digest != PICTURE.digest
    assert len(PICTURE.digest) == 32


def test_the_header_states_the_size() -> None:
    assert png_size(png(300, 7)) == (300, 7)
    assert png_size(b"\x89PNG\r\n\x1a\n") is None
    assert png_size(b"GIF89a" + b"\x00" * 60) is None


HOSTILE: dict[str, tuple[Any, str]] = {
    "no object": (["x"], "`png` in base64"),
    "no base64": ([{"png": "%%%", "width": 2, "height": 1}], "in base64"),
    "no PNG": ([{"png": base64.b64encode(b"GIF89a" * 20).decode(), "width": 2, "height": 1}], "no PNG file"),
    "a bomb": ([{"png": base64.b64encode(png(1, 2049)).decode(), "width": 1, "height": 2049}], "1 x 2049 pixels"),
    "words of another kind": (
        [{"png": base64.b64encode(png()).decode(), "width": 2, "height": 1, "alt": 3}],
        "an `alt` that is no text",
    ),
    "too many bytes": (
        [{"png": "A" * (LARGEST_IMAGE // 3 * 4 + 8), "width": 2, "height": 1}],
        "a file of 4,194,",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pictures_are_refused_in_a_sentence(name: str) -> None:
    images, found = HOSTILE[name]
    with pytest.raises(WireError, match=found) as refused:
        read_observation({"text": "look", "opening": "", "images": images})
    assert len(str(refused.value)) < 600
