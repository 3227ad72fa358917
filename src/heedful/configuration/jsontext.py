"""JSON that others wrote: parsed with a bound on its nesting, so that no reader runs out of stack.

All readers of files and messages in this package parse with `parse_json` or `read_json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DEEPEST = 200
"""Lists and objects inside each other. Far more than any file of ours, and far less than Python's stack holds."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: the text is no JSON, no UTF-8, or nested deeper than `DEEPEST`. The message is a phrase.
    """
    try:
        tree = json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"bytes that are no UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"text that is not JSON ({error})") from error
    except RecursionError as error:
        raise ValueError(_too_deep()) from error
    except ValueError as error:  # Python refuses to convert numbers of thousands of digits
        raise ValueError(f"a number that cannot be read ({error})") from error
    if _may_be_deep(text) and _is_deep(tree):
        raise ValueError(_too_deep())
    return tree


def read_json(path: Path) -> Any:
    """The JSON value in a file. Raises ValueError as `parse_json` does, and OSError where the file cannot be read."""
    return parse_json(path.read_bytes())


def _too_deep() -> str:
    return f"JSON nested deeper than {DEEPEST} levels"


def _may_be_deep(text: str | bytes) -> bool:
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    return sum(text.count(bracket) for bracket in opening) > DEEPEST  # type: ignore[arg-type]


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
