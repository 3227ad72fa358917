"""A JSON list or object of any size, read item by item. The memory holds one item and a part of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heedful.boundary import open_file, parse_json

LONGEST_ITEM = 64 << 20
"""Bytes. A longer item is no product, but a file that lacks a bracket."""

_CHUNK = 1 << 20
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{},]', re.DOTALL)
"""Possessive, since the engine would remember a way back for each escape."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def listed(path: Path) -> Iterator[tuple[int, Any]]:
    """(line, value) of each item of a list. An item that is no JSON comes as its ValueError."""
    for line, text in _items(path, b"["):
        yield line, _parsed(text)


def named(path: Path) -> Iterator[tuple[int, str, Any]]:
    """(line, name, value) of each member of an object. One that is no JSON has the value ValueError and no name."""
    for line, text in _items(path, b"{"):
        read = _parsed(b"{" + text + b"}")
        if isinstance(read, dict) and len(read) == 1:
            yield line, *next(iter(read.items()))
        else:
            yield line, "", read if isinstance(read, ValueError) else ValueError("something that is no member")


def _parsed(text: bytes) -> Any:
    try:
        value = parse_json(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError:
        return ValueError("half of a pair of surrogates, which is no letter")
    except ValueError as error:
        return error


def _items(path: Path, opening: bytes) -> Iterator[tuple[int, bytes]]:
    """The items between the outer brackets, each with its first line. Raises ValueError for another file."""
    what = "a list" if opening == b"[" else "an object"
    with open_file(path) as file:
        buffer = file.read(_CHUNK).removeprefix(b"\xef\xbb\xbf")
        start = len(buffer) - len(buffer.lstrip())
        if buffer[start : start + 1] != opening:
            raise ValueError(f"Expected {what} as JSON in {path}, found {buffer[start : start + 40]!r}.")
        line = 1 + buffer.count(b"\n", 0, start)
        start += 1
        place, depth, closed = start, 1, False
        while not closed:
            for token in _TOKEN.finditer(buffer, place):
                mark = token[0]
                if mark == b'"':  # a text that goes on beyond the buffer
                    place = token.start()
                    break
                place = token.end()
                depth += (mark in b"[{") - (mark in b"]}") if len(mark) == 1 else 0
                closed = depth == 0
                if closed or (mark == b"," and depth == 1):
                    item = buffer[start : token.start()]
                    if item.strip():
                        yield line + item[: len(item) - len(item.lstrip())].count(b"\n"), item.strip()
                    line += item.count(b"\n")
                    start = place
                if closed:
                    break
            else:
                place = len(buffer)
            if closed:
                rest = (buffer[place:] + file.read(_CHUNK)).strip()
                if rest:
                    raise ValueError(
                        f"Expected the end of {path} after {what} that ends in line {line}, found {rest[:40]!r}. Keep "
                        "one list or object in a file."
                    )
                break
            # As much again as is held, so that a text without an end is not searched once for each part of it.
            more = file.read(max(_CHUNK, len(buffer) - start))
            open_at = line + buffer[start:].count(b"\n", 0, len(buffer[start:]) - len(buffer[start:].lstrip()))
            if not more:
                raise ValueError(
                    f"Expected the end of {what} in {path}, but the file ends in the item of line {open_at}."
                )
            if len(buffer) - start > LONGEST_ITEM:
                raise ValueError(
                    f"Expected items of at most {LONGEST_ITEM:,} bytes in {path}; line {open_at} begins a longer one."
                )
            buffer, place = buffer[start:] + more, place - start
            start = 0
