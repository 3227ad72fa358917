"""JSON that others wrote: parsed with a bound on its nesting, so that no reader runs out of stack.

All readers of files and messages in this package parse with `parse_json` or `read_json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from heedful.boundary.open_files import open_file, read_up_to

DEEPEST = 200
"""Lists and objects inside each other. Far more than any file of ours, and far less than Python's stack holds."""

_DECODER = json.JSONDecoder()


LARGEST = 256 << 20
"""Bytes of a JSON file. Rows, which may be many, are in other files."""


def parse_json(
    text: str | bytes,
    whole_number: Callable[[str], Any] | None = None,
    constant: Callable[[str], Any] | None = None,
) -> Any:
    """The value of a JSON text. `whole_number` converts the digits of whole numbers, in place of `int`.

    `constant` converts `NaN`, `Infinity` and `-Infinity`. Without it they are read as numbers.

    Raises:
        ValueError: the text is no JSON, no UTF-8, or nested deeper than `DEEPEST`. The message is a phrase.
    """
    try:
        # Without an encoding json.loads would take a line that begins with a zero byte for UTF-16.
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"bytes that are no UTF-8 text (byte {error.start})") from error
    decode = partial(json.loads, decoded, parse_int=whole_number, parse_constant=constant)
    return _read(lambda: (decode(), len(decoded)), decoded, 0)[0]


def parse_json_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and the place after it. The text may go on. White space is not skipped.

    Raises:
        ValueError: as `parse_json` does.
    """
    return _read(lambda: _DECODER.raw_decode(text, start), text, start)


def _read(decode: Callable[[], tuple[Any, int]], text: str, start: int) -> tuple[Any, int]:
    """What `decode` gives, a value and the place after it, with every error as a phrase."""
    try:
        tree, end = decode()
    except json.JSONDecodeError as error:
        raise ValueError(f"text that is not JSON ({error})") from error
    except RecursionError as error:
        raise ValueError(_too_deep()) from error
    except ValueError as error:  # Python refuses to convert numbers of thousands of digits
        raise ValueError(f"a number that cannot be read ({error})") from error
    if text.count("[", start, end) + text.count("{", start, end) > DEEPEST and _is_deep(tree):
        raise ValueError(_too_deep())
    return tree, end


def read_json(path: Path, pipes: bool = False) -> Any:
    """The JSON value in a file. Raises ValueError as `parse_json` does, and OSError where the file cannot be read.

    A file that goes on after `LARGEST` bytes is refused, too. `pipes`: the user typed the path, which may be a pipe.
    """
    with path.open("rb") if pipes else open_file(path) as stream:
        content = read_up_to(stream, LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"more than {LARGEST >> 20} MiB in one JSON file")
    return parse_json(content)


def _too_deep() -> str:
    return f"JSON nested deeper than {DEEPEST} levels"


def _is_deep(tree: Any) -> bool:
    level = [tree]
    for _ in range(DEEPEST):
        level = [
            item
            for node in level
            if isinstance(node, dict | list)
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
