"""JSON that others wrote: whatever is wrong with it is a ValueError whose message is a phrase.

All readers of files and messages in this package parse with `parse_json` or `read_json`. `expecting` makes one sentence
of whatever another form leads to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedful.boundary.foreign_text import brief, cut
from heedful.boundary.open_files import open_file


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. `NaN`, `Infinity` and `-Infinity` are numbers.

    Raises ValueError, a phrase, for a text that is no JSON, no UTF-8, or nested deeper than Python reads.
    """
    with _errors_as_phrases():
        # Without an encoding json.loads would take a line that begins with a zero byte for UTF-16.
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
        return json.loads(decoded)


def parse_json_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and the place after it. The text may go on. White space is not skipped.

    Raises ValueError as `parse_json` does.
    """
    with _errors_as_phrases():
        return json.JSONDecoder().raw_decode(text, start)


def read_json(path: Path, pipes: bool = False) -> Any:
    """The JSON value in a file. Raises ValueError as `parse_json` does, and OSError where the file cannot be read.

    `pipes`: the user typed the path, which may be a pipe.
    """
    with path.open("rb") if pipes else open_file(path) as stream:
        return parse_json(stream.read())


@contextmanager
def expecting(
    what: str,
    remedy: str = "",
    value: object = ...,
    error: Callable[[str], Exception] = ValueError,
    also: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Make one sentence of what a file or a message of another form leads to: `Expected WHAT, found FOUND. REMEDY`.

    `what`: such as `a task in FILE`. What was found is the text of the error, or `value`, if given, with the text in
    brackets. `error`: makes the error that is raised. `also`: errors of a library that reads.
    """
    data = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
    wrong: tuple[type[Exception], ...] = (OSError, EOFError, *data, *also)
    try:
        yield
    except wrong as problem:
        said = f"no {problem}" if isinstance(problem, KeyError) else str(problem).rstrip(".")
        found = said if value is ... else f"{brief(value)} ({cut(' '.join(said.split()), 300)})"
        raise error(f"Expected {what}, found {found}. {remedy}".rstrip()) from problem


@contextmanager
def _errors_as_phrases() -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"bytes that are no UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"text that is not JSON ({error})") from error
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error
