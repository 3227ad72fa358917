"""What a server says, checked as it arrives: a strange answer is a sentence, and nothing later breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from heedful.boundary.foreign_text import cut
from heedful.envs.common.contract import shown
from heedful.envs.transport.wire import Tree, WireError
from heedful.guarded import RaisedElsewhere
from heedful.types import Tool

PROTOCOL = 1


def field_of(answer: Tree, name: str, url: str, fits: Callable[[Any], bool], wanted: str) -> Any:
    """A field of an answer, if it is what was wanted. Raises WireError.

    Raises RaisedElsewhere for what the environment raised there instead.
    """
    value = answer.get(name) if isinstance(answer, dict) else answer
    if isinstance(answer, dict) and isinstance(answer.get("raised"), str):
        raise RaisedElsewhere(cut(answer["raised"]))
    if not fits(value):
        raise WireError(f"Expected {name!r} of the environment server at {url} as {wanted}, found {shown(value)}.")
    return value


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def is_object(value: object) -> bool:
    return isinstance(value, dict)


def is_session(value: object) -> bool:
    """Whether it is the id of a session, which becomes a part of paths."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}", value) is not None


def is_pairs(value: object) -> bool:
    """Whether it is a demonstration: (observation, reply) for each turn."""
    return isinstance(value, list) and value != [] and all(is_texts(pair) and len(pair) == 2 for pair in value)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_tools(value: object) -> bool:
    return isinstance(value, list) and all(
        is_object(tool) and is_texts([tool.get(n) for n in _TEXTS]) and is_object(tool.get("parameters"))
        for tool in value
    )


_TEXTS = ("name", "description", "form")

_DESCRIPTION: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("name", lambda value: is_text(value) and value != "", "text"),
    ("summary", is_text, "text"),
    ("digest", is_text, "text"),
    ("turns", _is_count, "a whole number of at least 1"),
    ("actions", is_texts, "a list of texts"),
    ("tools", _is_tools, "a list of names, descriptions and schemas"),
    ("offers", is_texts, "a list of texts"),
    ("knobs", is_object, "an object"),
)


def checked_description(tree: Tree, url: str) -> dict[str, Tree]:
    """The description of an environment, with all that this side reads of it. Raises WireError."""
    found = tree.get("protocol") if isinstance(tree, dict) else tree
    if found != PROTOCOL or type(found) is not int:
        raise WireError(
            f"Expected the environment server at {url} to describe its environment with protocol {PROTOCOL}, found "
            f"{shown(found)}: it serves something else, or is of another version of heedful."
        )
    said = {"tools": [], "knobs": {}} | tree
    described = {name: field_of(said, name, url, fits, wanted) for name, fits, wanted in _DESCRIPTION}
    most = field_of(said, "actions_per_turn", url, _is_count, _DESCRIPTION[3][2]) if described["actions"] else None
    tools = [Tool(tool["name"], tool["description"], tool["parameters"], tool["form"]) for tool in described["tools"]]
    return described | {"actions_per_turn": most, "tools": tools}
