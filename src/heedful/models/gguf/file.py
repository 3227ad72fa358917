"""What a GGUF file says about itself: its settings, and the names, shapes and places of its tensors. Torch-free.

Everything is checked against the size of the file before anything is read at length. So numbers and lengths that a
damaged or hostile file names take neither memory nor time. Source of the format: ggml, docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Setting = Any
"""A number, a truth value, a text, or a tuple of them."""

MOST_HEADER = 256 << 20
"""Bytes of settings and of the table of tensors. A vocabulary of 256,000 tokens takes about 12 MB."""
MOST_SETTINGS = 10_000
MOST_TENSORS = 100_000
MOST_ENTRIES = 2_000_000
"""Entries of all lists together."""
MOST_TEXT = 4 << 20
"""Bytes of one text."""
MOST_DIMENSIONS = 4

_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The type of a setting -> its letter for `struct`."""
_TEXT, _LIST = 8, 9


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The header of a GGUF file."""

    path: Path
    settings: Mapping[str, Setting]
    shapes: Mapping[str, tuple[int, ...]]
    """The dimensions of each tensor, as the file orders them: the length of a row first."""

    @property
    def numbers(self) -> int:
        """How many weights the file has."""
        return sum(map(math.prod, self.shapes.values()))


def read_gguf(path: Path) -> GgufFile:
    """The header of the file.

    Raises:
        ValueError: a sentence; the file is no GGUF, is damaged or cut, or names what no model has.
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if start[:4] != b"GGUF":
            raise ValueError("it is no GGUF file (it does not start with GGUF)")
        if len(start) < 8:
            raise ValueError(f"it ends after {size:,} bytes")
        with mmap.mmap(file.fileno(), min(size, MOST_HEADER), access=mmap.ACCESS_READ) as header:
            return _Header(header, size).read(path)


class _Header:
    """Reads the header from its start to its end."""

    def __init__(self, data: mmap.mmap, size: int) -> None:
        self._data, self._size, self._place = data, size, 4
        self._entries = 0

    def read(self, path: Path) -> GgufFile:
        version = self._number("I")
        if version & 0xFFFF == 0:
            raise ValueError("its numbers are in the byte order of other machines (big-endian)")
        if version not in _VERSIONS:
            raise ValueError(f"it is GGUF version {version}, expected 2 or 3")
        tensors = self._count("Q", MOST_TENSORS, "tensors")
        settings = self._settings(self._count("Q", MOST_SETTINGS, "settings"))
        return GgufFile(path, settings, self._tensors(tensors, _alignment(settings)))

    def _settings(self, count: int) -> dict[str, Setting]:
        found: dict[str, Setting] = {}
        for _ in range(count):
            name = self._text()
            if name in found:
                raise ValueError(f"the setting {name[:100]!r} stands in it twice")
            found[name] = self._setting(self._number("I"))
        return found

    def _setting(self, kind: int) -> Setting:
        if kind == _TEXT:
            return self._text()
        if kind == _LIST:
            return self._list()
        return self._number(_letter(kind))

    def _list(self) -> tuple[Setting, ...]:
        kind = self._number("I")
        count = self._count("Q", MOST_ENTRIES - self._entries, "entries of lists")
        self._entries += count
        if kind == _TEXT:
            return tuple(self._text() for _ in range(count))
        return self._numbers(_letter(kind), count)

    def _tensors(self, count: int, alignment: int) -> dict[str, tuple[int, ...]]:
        places: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(count):
            name = self._text()
            if name in places:
                raise ValueError(f"the tensor {name[:100]!r} stands in it twice")
            shape = self._numbers("Q", self._count("I", MOST_DIMENSIONS, f"dimensions of {name[:100]!r}"))
            kind, offset = self._number("I"), self._number("Q")
            places[name] = (shape, offset, _bytes_of(name, shape, kind))
        start = -(-self._place // alignment) * alignment
        for name, (_, offset, length) in places.items():
            if start + offset + length > self._size:
                raise ValueError(
                    f"the tensor {name[:100]!r} ends at byte {start + offset + length:,}, and the file at byte "
                    f"{self._size:,}: it is cut or damaged"
                )
        if sum(length for _, _, length in places.values()) > self._size:
            raise ValueError("its tensors share bytes, so they need more memory than the file has")
        return {name: shape for name, (shape, _, _) in places.items()}

    def _count(self, letter: str, most: int, what: str) -> int:
        count = self._number(letter)
        if count > most:
            raise ValueError(f"it names {count:,} {what}, expected {most:,} at most")
        return count

    def _text(self) -> str:
        length = self._count("Q", MOST_TEXT, "bytes of a text")
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"the text before byte {self._place:,} is not UTF-8") from error

    def _number(self, letter: str) -> Any:
        return self._numbers(letter, 1)[0]

    def _numbers(self, letter: str, count: int) -> tuple[Any, ...]:
        layout = f"<{count}{letter}"
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, length: int) -> bytes:
        end = self._place + length
        if end > len(self._data):
            where = f"it ends at byte {self._size:,}" if len(self._data) == self._size else "its header is too long"
            raise ValueError(f"{where}, and byte {end:,} is still part of its header: it is cut or damaged")
        taken = self._data[self._place : end]
        self._place = end
        return taken


def _letter(kind: int) -> str:
    if kind not in _NUMBERS:
        what = "lists of lists" if kind == _LIST else f"a setting of the unknown type {kind}"
        raise ValueError(f"it has {what}")
    return _NUMBERS[kind]


def _alignment(settings: Mapping[str, Setting]) -> int:
    found = settings.get("general.alignment", 32)
    if type(found) is not int or not 1 <= found <= 1 << 20 or found & (found - 1):
        raise ValueError(f"its general.alignment is {found!r}, expected a power of two")
    return found


def _bytes_of(name: str, shape: tuple[int, ...], kind: int) -> int:
    """How many bytes the tensor takes. The package `gguf` knows the types."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    if not shape or min(shape) < 1:
        raise ValueError(f"the tensor {name[:100]!r} has the shape {list(shape)}")
    if kind not in [known.value for known in GGML_QUANT_SIZES]:
        raise ValueError(f"the tensor {name[:100]!r} is of the type {kind}, which the installed gguf does not know")
    block, length = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    if shape[0] % block:
        raise ValueError(f"the rows of {name[:100]!r} have {shape[0]:,} numbers, expected blocks of {block}")
    return math.prod(shape) // block * length
