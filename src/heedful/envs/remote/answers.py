"""What a server says, read as it arrives: a strange answer is a sentence, and nothing later breaks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal

from annotated_types import Ge, MinLen, Predicate

from heedful.boundary.foreign_text import cut
from heedful.boundary.jsontext import expecting
from heedful.envs.common.wire import Tree, WireError
from heedful.guarded import RaisedElsewhere
from heedful.types import Tool

PROTOCOL = 1

Session = Annotated[str, Predicate(re.compile("[A-Za-z0-9_-]{1,100}").fullmatch)]
"""The id of a session, which becomes a part of paths."""

Name = Annotated[str, MinLen(1)]
AtLeastOne = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class Described:
    """What a server says of its environment."""

    protocol: Literal[1]
    name: Name
    summary: str
    digest: str
    turns: AtLeastOne
    actions: Sequence[str]
    actions_per_turn: AtLeastOne | None
    offers: Sequence[str]
    tools: Sequence[Tool] = ()
    knobs: dict[str, Any] = field(default_factory=dict)


@lru_cache
def _reader(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def field_of(answer: Tree, name: str, url: str, kind: Any) -> Any:
    """A field of an answer, of the kind that was wanted. Raises WireError.

    Raises RaisedElsewhere for what the environment raised there instead.
    """
    if isinstance(answer, dict) and isinstance(answer.get("raised"), str):
        raise RaisedElsewhere(cut(answer["raised"]))
    what = f"{name!r} of the environment server at {url} as docs/isolation.md has it"
    with expecting(what, value=answer, error=WireError):
        return _reader(kind).validate_python(answer[name])


def described(tree: Tree, url: str) -> Described:
    """The description of an environment. Raises WireError."""
    what = f"the environment server at {url} to describe its environment with protocol {PROTOCOL}"
    with expecting(what, "It serves something else, or is of another version of heedful.", tree, WireError):
        found: Described = _reader(Described).validate_python(tree)
    return found
