"""Configurations as JSON trees: written whole, read strictly, overridden in part.

`from_json(cls, to_json(config)) == config`. A tree with an unknown key or a wrong value is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from heedful.boundary.open_files import in_home
from heedful.boundary.schema import (
    MISSING,
    Chosen,
    Either,
    Fixed,
    Kind,
    Many,
    Nested,
    OneOf,
    Plain,
    Setting,
    describe,
    did_you_mean,
    holds,
    settings_of,
)
from heedful.boundary.trust import hold, trusted_models

T = TypeVar("T")
Tree: TypeAlias = dict[str, Any]
"""What JSON can hold, as an object."""

_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""JSON has no such numbers; they are written as text."""

_BROKEN = object()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with one setting."""

    path: str
    """Dotted, e.g. `filter.p`; empty for the whole."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" if self.path else self.sentence


class ConfigurationError(ValueError):
    """Settings that cannot be applied: one line for each problem."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n".join([f"{count} in the configuration:", *(f"  {problem}" for problem in problems)]))


def to_json(config: object) -> Tree:
    """The whole tree of a configuration; a choice carries its name as `type`."""
    tree: Tree = {}
    for setting in settings_of(type(config)):
        value = getattr(config, setting.name)
        if word := setting.word(value):
            hold(word)
        tree[setting.name] = _write(setting.kind, value)
    return tree


def from_json(cls: type[T], tree: Mapping[str, Any], base: T | None = None) -> T:
    """Build a configuration. What the tree leaves out comes from `base`, or else from the defaults.

    A tree that changes the `type` of a choice starts from that choice's defaults. Raises ConfigurationError with every
    problem: unknown settings, wrong types and values, and what a class itself refuses when it is constructed.
    """
    problems: list[Problem] = []
    found = cast(T, read(cls, merge(cls, start(cls, base), tree), problems))
    if problems:
        raise ConfigurationError(problems)
    return found


def start(cls: type, base: object | None) -> Tree:
    """The tree to override: that of `base`, or the defaults; settings without a default are missing from it."""
    return _defaults(cls) if base is None else to_json(base)


def merge(cls: type, base: Tree, tree: Any) -> Any:
    """Lay a partial tree over a base, setting by setting. What does not fit is kept, for `read` to refuse."""
    if not isinstance(tree, Mapping):
        return tree
    kinds = {setting.name: setting.kind for setting in settings_of(cls)}
    merged = dict(base)
    for name, value in tree.items():
        match kinds.get(name):
            case Nested(cls=inner):
                merged[name] = merge(inner, base.get(name) or _defaults(inner), value)
            case Chosen() as kind:
                merged[name] = _merge_choice(kind, base.get(name), value)
            case _:
                merged[name] = value
    return merged


def walk(cls: type, tree: Tree, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Setting, object]]:
    """All settings of a tree: (path, setting, its value in the tree or `MISSING`), parents before children."""
    for setting in settings_of(cls):
        path, value = (*prefix, setting.name), tree.get(setting.name, MISSING)
        yield path, setting, value
        if inner := class_in(setting.kind, value):
            yield from walk(inner, value if isinstance(value, dict) else {}, path)


def class_in(kind: Kind, value: object) -> type | None:
    """The dataclass that a value of this kind holds, if it is known."""
    if isinstance(kind, Nested):
        return kind.cls
    if isinstance(kind, Chosen) and isinstance(value, dict):
        try:
            return kind.choice.find(value.get("type"))
        except LookupError:
            return None
    return None


def read(cls: type, tree: Any, problems: list[Problem], path: str = "") -> object:
    """Build an instance; every problem is appended to `problems`, and the result is then of no use."""
    if not isinstance(tree, Mapping):
        problems.append(Problem(path, f"expected an object with the settings of {cls.__name__}, found {_show(tree)}"))
        return _BROKEN
    settings = {setting.name: setting for setting in settings_of(cls)}
    before = len(problems)
    problems += [Problem(_join(path, name), _unknown(cls, name, tree)) for name in tree if name not in settings]
    values: dict[str, object] = {}
    for name, setting in settings.items():
        if name in tree:
            values[name] = _read(setting.kind, tree[name], problems, _join(path, name))
            if setting.needs_trust and (refused := setting.needs_trust.refusal(tree[name])):
                problems.append(Problem(_join(path, name), refused))
        elif setting.default() is MISSING:
            problems.append(Problem(_join(path, name), f"is required: expected {describe(setting.kind)}"))
    if len(problems) > before:
        return _BROKEN
    try:
        return cls(**values)
    except ValueError as error:  # what the class itself refuses, such as two settings that exclude each other
        problems.append(Problem(path, str(error)))
        return _BROKEN


def fits(kind: Kind, value: object) -> bool:
    """Whether a value of a tree can be read as this kind."""
    problems: list[Problem] = []
    _read(kind, value, problems, "")
    return not problems


def _unknown(cls: type, name: str, tree: Mapping[str, Any]) -> str:
    paths = [".".join(path) for path, _, _ in walk(cls, dict(tree))]
    deeper = next((path for path in paths if path.endswith(f".{name}")), None)
    hint = f"; did you mean {deeper}?" if deeper else did_you_mean(name, paths)
    known = ", ".join(setting.name for setting in settings_of(cls)) or "no settings"
    return f"unknown setting{hint or ';'} {cls.__name__} has {known}"


def _read(kind: Kind, value: Any, problems: list[Problem], path: str) -> object:
    match kind:
        case Nested():
            return read(kind.cls, value, problems, path)
        case Chosen():
            return _read_choice(kind, value, problems, path)
        case Either():
            member = next((member for member in kind.kinds if fits(member, value)), None)
            if member is not None:
                return _read(member, value, problems, path)
        case Many() if isinstance(value, list | tuple):
            before = len(problems)
            items = _read_items([kind.item] * len(value), value, problems, path)
            if len(problems) > before or kind.allows(items):
                return items
        case Fixed() if isinstance(value, list | tuple) and len(value) == len(kind.items):
            return _read_items(list(kind.items), value, problems, path)
        case OneOf():
            for written, held in kind.options:
                if type(written) is type(value) and written == value:
                    return held
        case Plain():
            found = _read_plain(kind.type, value)
            if found is not _BROKEN and kind.allows(found):
                return found
    hint = ""
    if isinstance(kind, OneOf) and isinstance(value, str):
        hint = did_you_mean(value, [written for written, _ in kind.options if isinstance(written, str)])
    problems.append(Problem(path, f"expected {describe(kind)}, found {_show(value)}{hint}"))
    return _BROKEN


def _read_plain(plain: type, value: Any) -> object:
    if plain is float:
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if not isinstance(value, int | float) or isinstance(value, bool):
            return _BROKEN
        return float(value)
    if plain is Path:
        return in_home(value) if isinstance(value, str) else _BROKEN
    return value if type(value) is plain else _BROKEN


def _read_items(kinds: list[Kind], values: Any, problems: list[Problem], path: str) -> tuple[object, ...]:
    pairs = enumerate(zip(kinds, values, strict=True))
    return tuple(_read(kind, value, problems, f"{path}[{place}]") for place, (kind, value) in pairs)


def _read_choice(kind: Chosen, value: Any, problems: list[Problem], path: str) -> object:
    if value is None and kind.optional:
        return None
    if not isinstance(value, Mapping) or "type" not in value:
        problems.append(Problem(path, f"expected {describe(kind)}, found {_show(value)}"))
        return _BROKEN
    try:
        cls = kind.choice.find(value["type"])
    except LookupError as error:
        problems.append(Problem(_join(path, "type"), str(error)))
        return _BROKEN
    settings = {name: each for name, each in value.items() if name != "type"}
    known, before = {setting.name for setting in settings_of(cls)}, len(problems)
    for name in [name for name in settings if name not in known]:
        if owners := kind.choice.owners(name):
            sentence = f"{value['type']} has no setting {name}; it belongs to {' and '.join(owners)}"
            problems.append(Problem(_join(path, name), sentence))
            del settings[name]
    found = read(cls, settings, problems, path)
    return found if len(problems) == before else _BROKEN


def _merge_choice(kind: Chosen, base: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    base = base if isinstance(base, dict) else {}
    name = value.get("type", base.get("type"))
    cls = class_in(kind, {"type": name})
    if cls is None:
        return dict(value)
    settings = {key: each for key, each in value.items() if key != "type"}
    if name != base.get("type"):
        return {"type": name, **merge(cls, _defaults(cls), settings)}
    return merge(cls, base, settings)


def _defaults(cls: type) -> Tree:
    tree: Tree = {}
    for setting in settings_of(cls):
        default = setting.default()
        if default is not MISSING:
            tree[setting.name] = _write(setting.kind, default)
        elif isinstance(setting.kind, Nested):
            tree[setting.name] = _defaults(setting.kind.cls)
    return tree


def trust_needed(config: object) -> list[str]:
    """What must be trusted to read this configuration back, in order: modules, secrets and other permissions."""
    named = set()
    for _, setting, value in walk(type(config), to_json(config)):
        chosen = value.get("type", "") if isinstance(setting.kind, Chosen) and isinstance(value, dict) else ""
        word = chosen if ":" in chosen else setting.word(value)
        is_code = ":" in chosen or (setting.needs_trust is not None and not setting.needs_trust.why)
        named.add(word.partition(":")[0] if is_code else word)
    return sorted(named - {""})


def trust_flags(config: object) -> list[str]:
    """The flags that another `heedful` command needs to read this configuration, and to load the same models."""
    modules = [word for module in trust_needed(config) for word in ("--trust", module)]
    return [*modules, *(word for model in trusted_models() for word in ("--trust-model-code", model))]


def _write(kind: Kind, value: Any) -> Any:
    match kind:
        case Nested():
            return to_json(value)
        case Chosen():
            return None if value is None else {"type": kind.choice.name_of(type(value)), **to_json(value)}
        case Either():
            return _write(next(member for member in kind.kinds if holds(member, value)), value)
        case Many():
            return [_write(kind.item, item) for item in value]
        case Fixed():
            return [_write(item, each) for item, each in zip(kind.items, value, strict=True)]
        case OneOf():
            return next(written for written, held in kind.options if held == value)
        case Plain() if isinstance(value, float) and not math.isfinite(value):
            return str(float(value))
        case Plain():
            return str(value) if kind.type is Path else int(value) if kind.type is int else value


def _show(value: object) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
