"""Checks of what a server says, as it arrives: a hostile or strange answer is a sentence, and nothing later breaks.

Each function raises WireError, which names what was expected and what was found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from heedful.envs.common.contract import MOST_ACTIONS, MOST_PER_TURN, shown
from heedful.envs.transport.wire import Tree, WireError
from heedful.types import Tool

PROTOCOL = 1

MOST_TOOLS = 100

LONGEST_NAME, LONGEST_SUMMARY = 200, 2000
"""Characters."""


def checked_description(tree: Tree, url: str) -> dict[str, Tree]:
    """The description of an environment, with all that this side reads of it."""
    what = f"the environment server at {url} to describe its environment with"
    if not isinstance(tree, dict):
        raise WireError(f"Expected the environment server at {url} to describe its environment, found {shown(tree)}.")
    if tree.get("protocol") != PROTOCOL or isinstance(tree["protocol"], bool):
        raise WireError(
            f"Expected {what} protocol {PROTOCOL}, found {shown(tree.get('protocol'))}: it serves something else, or "
            "is of another version of heedful."
        )
    actions = _names(tree, "actions", what)
    if len({action.lower() for action in actions}) < len(actions):
        raise WireError(f"Expected {what} distinct actions, found {shown(actions)}.")
    return {
        "name": _text(tree, "name", what, LONGEST_NAME),
        "summary": _text(tree, "summary", what, LONGEST_SUMMARY, least=0),
        "digest": _text(tree, "digest", what, LONGEST_NAME),
        "turns": _whole(tree, "turns", what, 10**6),
        "actions": actions,
        "actions_per_turn": _whole(tree, "actions_per_turn", what, MOST_PER_TURN) if actions else None,
        "tools": _tools(tree, what),
        "offers": _names(tree, "offers", what),
        "knobs": tree.get("knobs") if isinstance(tree.get("knobs"), dict) else {},
    }


def session_of(answer: Mapping[str, Tree], url: str) -> str:
    """The id of a session, which becomes a part of paths."""
    session = answer.get("session")
    if not isinstance(session, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", session):
        raise WireError(
            f"Expected the server at {url} to name the session in letters and digits, found {shown(session)}."
        )
    return session


def texts_of(answer: Tree, name: str, url: str) -> list[str]:
    """A list of texts, not empty."""
    texts = answer.get(name) if isinstance(answer, dict) else answer
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise WireError(f"Expected {name!r} of the server at {url} as a list of texts, found {shown(texts)}.")
    return texts


def text_of(answer: Mapping[str, Tree], name: str, url: str) -> str:
    text = answer.get(name)
    if not isinstance(text, str):
        raise WireError(f"Expected {name!r} of the server at {url} as text, found {shown(text)}.")
    return text


def pairs_of(answer: Mapping[str, Tree], url: str) -> list[tuple[str, str]]:
    """A demonstration: (observation, reply) for each turn."""
    pairs = answer.get("pairs")
    if isinstance(pairs, list) and pairs and all(map(_is_pair, pairs)):
        return [(observation, reply) for observation, reply in pairs]
    raise WireError(f"Expected 'pairs' of the server at {url} as pairs of texts, found {shown(pairs)}.")


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)


def _text(tree: dict[str, Any], name: str, what: str, most: int, least: int = 1) -> str:
    value = tree.get(name)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise WireError(f"Expected {what} {name!r} as a text of {least} to {most} characters, found {shown(value)}.")
    return value


def _whole(tree: dict[str, Any], name: str, what: str, most: int) -> int:
    value = tree.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise WireError(f"Expected {what} {name!r} as a whole number from 1 to {most:,}, found {shown(value)}.")
    return value


def _names(tree: dict[str, Any], name: str, what: str) -> list[str]:
    value = tree.get(name)
    if not isinstance(value, list) or len(value) > MOST_ACTIONS or not all(map(_is_name, value)):
        raise WireError(f"Expected {what} {name!r} as a list of short texts, found {shown(value)}.")
    return value


def _tools(tree: dict[str, Any], what: str) -> list[Tool]:
    """The tools. None from a server that does not speak of them."""
    value = tree.get("tools", [])
    if not isinstance(value, list) or len(value) > MOST_TOOLS or not all(map(_is_tool, value)):
        raise WireError(f"Expected {what} 'tools' as a list of names, descriptions and schemas, found {shown(value)}.")
    return [Tool(each["name"], each["description"], each["parameters"], each["form"]) for each in value]


def _is_tool(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("parameters"), dict):
        return False
    texts = [value.get(name) for name in ("name", "description", "form")]
    fits = all(isinstance(text, str) and len(text) <= LONGEST_SUMMARY for text in texts)
    return fits and isinstance(value["parameters"].get("properties", {}), dict)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME
