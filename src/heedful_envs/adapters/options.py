"""Options that a library takes and heedful does not know: text in the configuration, values for the library.

A text has one reading, or it is refused. Equal options are written in the same way.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from heedful.boundary import parse_json


def read_options(env: str, knob: str, text: str) -> dict[str, Any]:
    """`{"a": 1, "b": "x"}` as JSON, or `a=1 b=x`: values are JSON where they can be read so, else text.

    Raises ValueError for anything else.
    """
    text = text.strip()
    if not text:
        return {}
    if text.startswith("{"):
        try:
            options = parse_json(text)
        except ValueError as error:
            raise ValueError(f"{env}: {knob} begins like a JSON object, but cannot be read as one: {error}.") from error
        return dict(options)
    options = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{env}: {knob} has a quotation mark without its pair: {text!r}.") from error
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(
                f'{env}: {knob} is written as name=value with spaces between, or as JSON such as {{"name": 1}}, but '
                f"found {word!r}."
            )
        options[name] = _value(value)
    return options


def write_options(options: dict[str, Any]) -> str:
    """The canonical form of options: the same text for the same values."""
    return json.dumps(options, sort_keys=True)


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
