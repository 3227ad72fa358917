"""The one gate for what a file does not decide alone: modules, code of models, secrets, and walls that are taken away.

A name is followed if the user typed it or named it as trusted. A file never decides what is imported, where a secret is
sent, or that programs run without a sandbox. Nothing is remembered between two programs, and nothing in a run folder
grants trust.
"""

from __future__ import annotations

import functools
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heedful.boundary.open_files import in_home

TRUST_FLAGS = {"trust": "NAME", "trust_model_code": "MODEL"}
"""Flags of every command, and what they name."""


@dataclass(frozen=True, slots=True)
class _Trust:
    modules: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    folder: str | None = None
    """Searched last for a trusted module; `None` leaves `sys.path` as it is."""
    setting: str = ""
    """The setting that names what is trusted, where there is no flag and no argument `trust`."""

    def remedy(self, word: str) -> str:
        """What to add, so that `word` is trusted."""
        if not self.setting:
            return f"add --trust {shlex.quote(word)} (in Python: trust=[{word!r}])"
        plain = word.replace(".", "").isidentifier()
        return f"add {f'{self.setting}=[{word}]' if plain else shlex.quote(f'{self.setting}=[{word!r}]')}"


_NOBODY = _Trust()
_trust: ContextVar[_Trust] = ContextVar("trust", default=_NOBODY)
_held: set[str] = set()
"""Names that objects of this process have: reading back what the process wrote itself needs no trust."""


@dataclass(frozen=True, slots=True)
class NeedsTrust:
    """The mark of a setting that a file does not decide alone."""

    word: Callable[[Any], str]
    """The word after --trust that a value needs, if a file holds it. Empty = none."""
    why: str
    """What the word does. Empty: it names code."""

    def refusal(self, value: object) -> str:
        """The sentence that refuses this value, which a file holds. Empty = it may be followed."""
        word = self.word(value)
        if not word or word in _trust.get().modules or word in _held:
            return ""
        return f"{word!r} {self.why}. If you want that, {_trust.get().remedy(word)}" if self.why else untrusted(word)


def NamesCode() -> NeedsTrust:
    """Marks text that may hold `module:name`, whose module is imported when it is used."""
    return NeedsTrust(lambda value: value if isinstance(value, str) and ":" in value else "", "")


def NamesSecret() -> NeedsTrust:
    """Marks text that names a secret of the user, which is then sent to a server: a variable or a file."""
    why = "names a secret, and a file does not decide to which server it is sent"
    return NeedsTrust(lambda value: value if isinstance(value, str) else "", why)


def GetsSecret(variable: str) -> NeedsTrust:
    """Marks the URL of a server that is sent the secret in this environment variable, where there is one."""
    why = f"would be sent the secret in {variable}, and a file does not decide that"
    return NeedsTrust(lambda value: value if isinstance(value, str) and os.environ.get(variable) else "", why)


def TakesWallAway(value: str, permit: str) -> NeedsTrust:
    """Marks a choice, one value of which takes a wall away. `permit` is the word that allows it after --trust."""
    why = "takes a wall away, and a file does not decide that"
    return NeedsTrust(lambda found: permit if found == value else "", why)


@contextmanager
def trusting(names: Iterable[str] = (), *, folder: str | None = None, setting: str = "") -> Iterator[None]:
    """Trust these names inside the `with` block, and all names that are typed in it.

    A name is a module that settings may name as `module:Class`, or a model (a folder or a Hugging Face name) that may
    run code of its own. It covers no other module of the same package. It may also be the word that a sentence of
    refusal names: a secret, a server that gets one, or `sandbox=off`. `folder`: where modules are searched as well.
    `setting`: the setting that a refusal advises, inside a program without the flag --trust.
    """
    names = frozenset([str(names)] if isinstance(names, str | Path) else map(str, names))
    before = _trust.get()
    token = _trust.set(
        _Trust(before.modules | names, before.models | names, folder or before.folder, setting or before.setting)
    )
    try:
        yield
    finally:
        _trust.reset(token)


def trust_typed(name: str) -> None:
    """Trust what the user typed: the module of `my_game:Maze`, the module itself, or the word of another permission."""
    before = _trust.get()
    words = {name} if "://" in name else {name, name.partition(":")[0]}  # `http` is a module, too
    _trust.set(replace(before, modules=before.modules | words))


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
        f"{name!r} names code, and a file does not decide what is imported. If you trust the module {module}, "
        f"{_trust.get().remedy(module)}"
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
    if not all(module.split(".")):
        raise ModuleNotFoundError(f"expected the name of a module before the colon, found {module!r}", name=module)
    return functools.reduce(getattr, qualified_name.split("."), importlib.import_module(module))


def import_advice(name: str, error: BaseException) -> str:
    """What to do where `module:name` could not be imported, or made without arguments."""
    module, _, attribute = name.partition(":")
    if isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0]):
        return "Run heedful from the folder that holds the module, or set PYTHONPATH."
    loaded = sys.modules.get(module)
    if isinstance(error, AttributeError) and loaded is not None and error.obj is loaded:
        classes = [each for each, found in vars(loaded).items() if getattr(found, "__module__", "") == module]
        return f"{module} has {', '.join(classes) or 'no class and no function'}."
    return f'The whole error: python -c "import {module}; {module}.{attribute}()"'


def trusts_code_of(model: str | Path) -> bool:
    """Whether the user named this model. The folder of a run stands for its checkpoints."""
    named = _trust.get().models
    if str(model) in named:
        return True
    path = in_home(model).resolve()
    places = (path, path.parent.parent) if path.parent.name == "checkpoints" else (path,)
    return path.exists() and any(in_home(name).resolve() in places for name in named)
