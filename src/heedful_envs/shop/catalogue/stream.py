"""A JSON list or object of any size, read item by item. The memory holds one item and a part of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONGEST_ITEM = 64 << 20
"""Characters. A longer item is no product, but a file that lacks a bracket."""

_CHUNK = 1 << 20
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


def listed(path: Path) -> Iterator[tuple[int, Any]]:
    """(line, value) of each item of a list. Raises ValueError for another file, or one that was cut."""
    return ((line, value) for line, _, value in _items(path, "[", "]"))


def named(path: Path) -> Iterator[tuple[int, str, Any]]:
    """(line, name, value) of each member of an object. Raises ValueError for another file, or one that was cut."""
    return _items(path, "{", "}")


def _items(path: Path, opening: str, closing: str) -> Iterator[tuple[int, str, Any]]:
    """The items between the outer brackets, each with its first line, and its name if it has one."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        text = file.read(_CHUNK)
        place = len(text) - len(text.lstrip())
        if text[place : place + 1] != opening:
            what = "a list" if opening == "[" else "an object"
            raise ValueError(f"Expected {what} as JSON in {path}, found {text[place : place + 40]!r}.")
        line, place = 1 + text.count("\n", 0, place), place + 1
        while True:
            begin = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]  # it matches anything
            line += text.count("\n", place, begin)
            place = begin
            if text.startswith(closing, place):
                return
            found = _item(text, place, opening == "{")
            if found is not None:
                name, value, end = found
                yield line, name, value
                line += text.count("\n", place, end)
                place = end
                continue
            # As much again as is held, so that a text without an end is not read once for each part of it.
            more = file.read(max(_CHUNK, len(text) - place))
            if not more or len(text) - place > LONGEST_ITEM:
                raise ValueError(f"Expected JSON in {path}, but line {line} begins an item that cannot be read.")
            text, place = text[place:] + more, 0


def _item(text: str, place: int, named: bool) -> tuple[str, Any, int] | None:
    """The name and value at a place, and where they end. `None` if the text ends before."""
    try:
        name = ""
        if named:
            name, place = _DECODER.raw_decode(text, place)
            place = text.index(":", place) + 1
            place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]
        value, end = _DECODER.raw_decode(text, place)
    except ValueError:
        return None
    return (name, value, end) if _BETWEEN.match(text, end).end() < len(text) else None  # type: ignore[union-attr]
