"""The one gate for code that a name chooses: `module:name` in settings, and models that bring code of their own.

A name is followed if the user typed it or named it as trusted. A file never decides what is imported. Nothing is
remembered between two programs, and nothing in a run folder grants trust.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

TRUST_FLAGS = {"trust": "MODULE", "trust_model_code": "MODEL"}
"""Flags of every command, and what they name."""


@dataclass(frozen=True, slots=True)
class _Trust:
    modules: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    folder: str | None = None
    """Searched last for a trusted module; `None` leaves `sys.path` as it is."""


_NOBODY = _Trust()
_trust: ContextVar[_Trust] = ContextVar("trust", default=_NOBODY)
_held: set[str] = set()
"""Names that objects of this process have: reading back what the process wrote itself needs no trust."""


@contextmanager
def trusting(names: Iterable[str] = (), *, folder: str | None = None) -> Iterator[None]:
    """Trust these names inside the `with` block, and all names that are typed in it.

    A name is a module that settings may name as `module:Class`, or a model (a folder or a Hugging Face name) that may
    run code of its own. It covers no other module of the same package. `folder`: where modules are searched as well.
    """
    names = frozenset([names] if isinstance(names, str) else names)
    before = _trust.get()
    token = _trust.set(_Trust(before.modules | names, before.models | names, folder or before.folder))
    try:
        yield
    finally:
        _trust.reset(token)


def trust_typed(name: str) -> None:
    """Trust the module of a name that the user typed: `my_game:Maze`, or the module itself."""
    before = _trust.get()
    _trust.set(replace(before, modules=before.modules | {name.partition(":")[0]}))


def trust_model_code(name: str) -> None:
    """Trust the code of the model that the user named."""
    before = _trust.get()
    _trust.set(replace(before, models=before.models | {name}))


def trusted_models() -> list[str]:
    """The models whose code may run."""
    return sorted(_trust.get().models)


def hold(name: str) -> None:
    """Note a name of code that an object of this process has."""
    _held.add(name)


def untrusted(name: str) -> str:
    """The sentence that refuses a name found in data. Empty if it may be followed."""
    module = name.partition(":")[0]
    if module in _trust.get().modules or name in _held:
        return ""
    return (
        f"{name!r} names code, and a file does not decide what is imported. If you trust the module {module}, add "
        f"--trust {module} (in Python: trust=[{module!r}])"
    )


def import_named(name: str) -> Any:
    """The object that a trusted `module:name` names; the part after the colon may have dots.

    Raises LookupError, a sentence, for a name that is not trusted; ImportError, AttributeError or ValueError where
    there is no such thing.
    """
    refused = untrusted(name)
    if refused:
        raise LookupError(refused)
    folder = _trust.get().folder
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)
    return import_held(name)


def import_held(name: str) -> Any:
    """The object of a `module:name` that an object of this process holds: its reader has passed the gate."""
    module, _, qualified_name = name.partition(":")
    return functools.reduce(getattr, qualified_name.split("."), importlib.import_module(module))


def trusts_code_of(model: str | Path) -> bool:
    """Whether the user named this model. The folder of a run stands for its checkpoints."""
    named = _trust.get().models
    if str(model) in named:
        return True
    path = Path(model).expanduser().resolve()
    places = (path, path.parent.parent) if path.parent.name == "checkpoints" else (path,)
    return path.exists() and any(Path(name).expanduser().resolve() in places for name in named)
