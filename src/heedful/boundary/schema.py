"""What may be configured: the settings of a dataclass, the kinds of values they take, and the bounds of these values.

Bounds stand in the annotation, as pydantic and Hypothesis read them: `p: Annotated[float, Interval(gt=0, le=1)] = 0.9`.
`heedful.boundary.limits` has short names for frequent ones, such as `p: Share`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import operator
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

from annotated_types import Ge, Gt, Interval, Le, Lt, MinLen

from heedful.boundary.foreign_text import cut
from heedful.boundary.trust import NeedsTrust, hold, import_named

MISSING = dataclasses.MISSING

RESERVED = ("config", "print_config", "help")
"""Flags of every command line: no top-level setting may have these names, nor those of `TRUST_FLAGS`."""

PLAIN: dict[type, tuple[str, str, Any]] = {
    bool: ("true or false", "BOOL", bool),
    int: ("a whole number", "INT", Integral),
    float: ("a number", "FLOAT", Real),
    str: ("text", "TEXT", str),
    Path: ("a path", "PATH", str | PathLike),
}
"""How a type is described, its place-holder in a help text, and what holds it: numbers of numpy are numbers, too."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Marks a field whose value is one of several dataclasses: `Annotated[Filter, Choice(FILTERS)]`.

    A class that is not in the table is written, and can be chosen, as `module:Class`; choosing it imports that module,
    if the user typed the name or trusts the module (`heedful.boundary.trust`).
    """

    table: Mapping[str, type] | Callable[[], Mapping[str, type]]
    """Name -> dataclass, or a function without arguments that returns such a table when it is first needed."""
    contract: object = None
    """A protocol or a base class. A class named as `module:Class` must have its public members."""

    def names(self) -> list[str]:
        return list(self._classes())

    def find(self, name: object) -> type:
        """The dataclass of this name. Raises LookupError, in a sentence, where there is none or it cannot be loaded."""
        if not isinstance(name, str):
            raise LookupError(f"expected one of {', '.join(self.names())}, found {name!r}")
        if ":" in name:
            return _import_class(name, self)
        # Asking a lazy table whether it contains a name would load the class.
        names = self.names()
        if name not in names:
            raise LookupError(f"expected one of {', '.join(names)}, found {name!r}{did_you_mean(name, names)}")
        try:
            found: type = self._classes()[name]
        except ImportError as error:
            raise LookupError(f"{name!r} cannot be loaded: {error}") from error
        return found

    def name_of(self, cls: type) -> str:
        """The name under which a class is chosen."""
        found = next((name for name, each in self.loadable() if each is cls), None)
        if found is None:
            found = f"{cls.__module__}:{cls.__qualname__}"
            hold(found)
        return found

    def owners(self, setting: str) -> list[str]:
        """The names whose classes have a setting of this name."""
        return [name for name, cls in self.loadable() if any(setting == each.name for each in settings_of(cls))]

    def loadable(self) -> Iterator[tuple[str, type]]:
        """Names and classes, without those whose module needs something that is not installed."""
        for name in self.names():
            with contextlib.suppress(LookupError):
                yield name, self.find(name)

    def _classes(self) -> Mapping[str, type]:
        return self.table() if callable(self.table) else self.table


@dataclass(frozen=True, slots=True)
class Distinct:
    """Marks a list whose items differ: `Annotated[tuple[int, ...], Distinct()]`."""

    least: int = 0
    """Fewest items."""
    among: tuple[str, ...] = ()
    """The texts that may be items. Empty = any."""

    def __str__(self) -> str:
        return f"{f'{self.least} or more ' if self.least else ''}different items"


@dataclass(frozen=True, slots=True)
class Shown:
    """Names the value of a flag in a help text: with `out: Annotated[Path, Shown("DIR")]` it reads `--out DIR`."""

    name: str


@dataclass(frozen=True, slots=True)
class Positional(Shown):
    """Marks a text or path that is typed as a bare word, without a flag: `run: Annotated[Path, Positional("RUN")]`.

    A tuple takes all bare words that are left.
    """

    example: str = ""
    """The word whose defaults a help text shows when none was typed."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A bool, int, float, str or Path, within its bounds."""

    type: type
    bounds: tuple[Any, ...] = ()

    def allows(self, value: Any) -> bool:
        """Whether a value of this type is within the bounds. NaN is within none."""
        return all(_BOUNDS[type(bound)][1](value, getattr(bound, _BOUNDS[type(bound)][0])) for bound in self.bounds)

    def __str__(self) -> str:
        """For instance `a number above 0 and at most 1`."""
        limits = [(said, getattr(bound, name)) for bound in self.bounds for name, _, said in [_BOUNDS[type(bound)]]]
        bounds = [said.format(f"{limit:,}" if isinstance(limit, int) else f"{limit:g}") for said, limit in limits]
        return " ".join([PLAIN[self.type][0], " and ".join(bounds)]).rstrip()


_BOUNDS: dict[type, tuple[str, Callable[[Any, Any], bool], str]] = {
    Gt: ("gt", operator.gt, "above {}"),
    Ge: ("ge", operator.ge, "of at least {}"),
    Lt: ("lt", operator.lt, "below {}"),
    Le: ("le", operator.le, "at most {}"),
    MinLen: ("min_length", lambda value, least: len(value.strip()) >= least, "of at least {} letter"),
}
"""A bound of `annotated_types`: the attribute that holds it, its test, and how it is said."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """A Literal, an Enum or None: a fixed list of values."""

    options: tuple[tuple[object, object], ...]
    """(as written in JSON, as held by the dataclass)."""


@dataclass(frozen=True, slots=True)
class Either:
    """A union: the first kind that fits is taken."""

    kinds: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A tuple of any length."""

    item: Kind
    distinct: Distinct | None = None

    def allows(self, items: Sequence[Any]) -> bool:
        """Whether the items, each of the kind `item`, can stand in one list."""
        of = self.distinct
        return of is None or (len(set(items)) == len(items) >= of.least and not (of.among and set(items) - {*of.among}))


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tuple with one kind per place."""

    items: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Nested:
    """A dataclass of exactly this class."""

    cls: type


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of several dataclasses, by name."""

    choice: Choice
    optional: bool
    """`none` may be chosen as well."""


Kind: TypeAlias = Plain | OneOf | Either | Many | Fixed | Nested | Chosen
NOTHING = OneOf(((None, None),))


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a configuration class."""

    name: str
    kind: Kind
    field: dataclasses.Field[Any]
    shown: Shown | None = None
    """How it is typed, where the annotation says so."""
    needs_trust: NeedsTrust | None = None
    """What a file does not decide about it."""

    def word(self, value: object) -> str:
        """What must be trusted if a file holds this value. Empty = nothing."""
        return "" if self.needs_trust is None else self.needs_trust.word(value)

    def default(self) -> object:
        """The default value, or `MISSING`."""
        if self.field.default_factory is not MISSING:
            return self.field.default_factory()
        return self.field.default


def settings_of(cls: type) -> tuple[Setting, ...]:
    """The settings of a dataclass, in order. Raises TypeError where a field cannot be configured."""
    return _settings_of(cls)


@functools.cache
def _settings_of(cls: type) -> tuple[Setting, ...]:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"The annotations of {cls.__name__} cannot be read: {error}. Import the type at run time, not under "
            "TYPE_CHECKING."
        ) from error
    fields = [field for field in dataclasses.fields(cls) if field.init]
    if any(field.name == "type" for field in fields):
        raise TypeError(
            f"{cls.__name__}.type cannot be configured: `type` names the class. Give the field another name."
        )
    settings = []
    for field in fields:
        hint = hints[field.name]
        extras = getattr(hint, "__metadata__", ())
        shown = next((extra for extra in extras if isinstance(extra, Shown)), None)
        needs_trust = next((extra for extra in extras if isinstance(extra, NeedsTrust)), None)
        settings.append(Setting(field.name, _kind_of(hint, f"{cls.__name__}.{field.name}"), field, shown, needs_trust))
    return tuple(settings)


def _kind_of(hint: Any, where: str, bounds: tuple[Any, ...] = ()) -> Kind:
    """The kind of an annotation; `where` names the field in the TypeError for what cannot be configured."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        choice = next((extra for extra in arguments[1:] if isinstance(extra, Choice)), None)
        if choice is None:
            extras = (each for extra in arguments[1:] for each in (extra if isinstance(extra, Interval) else [extra]))
            known = tuple(extra for extra in extras if type(extra) in _BOUNDS or isinstance(extra, Distinct))
            return _kind_of(arguments[0], where, known)
        return Chosen(choice, optional=type(None) in typing.get_args(arguments[0]))
    if origin in (typing.Union, types.UnionType):
        return _union(tuple(_kind_of(argument, where, bounds) for argument in arguments), where)
    if origin is Literal:
        return OneOf(tuple((option, option) for option in arguments))
    if origin is tuple and arguments:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return Many(_kind_of(arguments[0], where), *bounds)
        return Fixed(tuple(_kind_of(argument, where) for argument in arguments))
    if hint is None or hint is type(None):
        return NOTHING
    if isinstance(hint, type):
        if hint in PLAIN:
            return Plain(hint, bounds)
        if issubclass(hint, Enum):
            return OneOf(tuple((m.value if isinstance(m.value, str) else m.name.lower(), m) for m in hint))
        if _is_config_class(hint):
            return Nested(hint)
    raise TypeError(
        f"{where} has the annotation {hint!r}, which cannot be configured. Use bool, int, float, str, Path, Literal, "
        "an Enum, None, a union or tuple of these, a dataclass, or Annotated[..., Choice({...})]."
    )


def _union(kinds: tuple[Kind, ...], where: str) -> Kind:
    if len(kinds) == 2 and NOTHING in kinds:
        chosen = next((kind for kind in kinds if isinstance(kind, Chosen)), None)
        if chosen is not None:
            return Chosen(chosen.choice, optional=True)
    if any(isinstance(kind, Nested | Chosen) for kind in kinds):
        raise TypeError(
            f"{where} is a union with a dataclass in it. Declare a choice, so that it has a name: "
            'Annotated[A | None, Choice({"a": A})].'
        )
    return Either(kinds)


def holds(kind: Kind, value: Any) -> bool:
    """Whether an object in Python holds a value of this kind."""
    match kind:
        case Plain():
            return isinstance(value, PLAIN[kind.type][2]) and kind.allows(value)
        case OneOf():
            return any(held == value for _, held in kind.options)
        case Either():
            return any(holds(each, value) for each in kind.kinds)
        case Many():
            items = isinstance(value, tuple | list) and all(holds(kind.item, each) for each in value)
            return items and kind.allows(value)
        case Fixed():
            same = isinstance(value, tuple | list) and len(value) == len(kind.items)
            return same and all(map(holds, kind.items, value))
        case Nested():
            return isinstance(value, kind.cls)
        case Chosen():
            return value is not None or kind.optional


def describe(kind: Kind) -> str:
    """What a value must be, as the object of `expected`."""
    match kind:
        case Plain():
            return str(kind)
        case OneOf():
            options = [spell(written) for written, _ in kind.options]
            return options[0] if len(options) == 1 else f"one of {', '.join(options)}"
        case Either():
            return " or ".join(map(describe, kind.kinds))
        case Many():
            if kind.distinct is None:
                return f"a list, each item {describe(kind.item)}"
            among = f"one of {', '.join(kind.distinct.among)}" if kind.distinct.among else describe(kind.item)
            return f"a list of {kind.distinct}, each {among}"
        case Fixed():
            return f"a list of {len(kind.items)} items ({'; '.join(map(describe, kind.items))})"
        case Nested():
            return f"an object with the settings of {kind.cls.__name__}"
        case Chosen():
            names = [*kind.choice.names(), *(["none"] if kind.optional else [])]
            return f'an object {{"type": NAME, ...}} with NAME among {", ".join(names)}'


def metavar(kind: Kind) -> str:
    """The place-holder of a value in a help text."""
    match kind:
        case Plain():
            return PLAIN[kind.type][1]
        case OneOf():
            return "|".join(spell(written) for written, _ in kind.options)
        case Either():
            return "|".join(map(metavar, kind.kinds))
        case Many():
            return f"{metavar(kind.item)},..."
        case Fixed():
            return ",".join(map(metavar, kind.items))
        case Nested() | Chosen():
            return "NAME"


def spell(written: object) -> str:
    """A JSON scalar as it is typed on a command line."""
    if written is None:
        return "none"
    return str(written).lower() if isinstance(written, bool) else str(written)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest known word, or nothing."""
    nearest = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def inner_kinds(kind: Kind) -> Iterator[Kind]:
    """The kind itself and, for a union, its members."""
    yield kind
    if isinstance(kind, Either):
        yield from kind.kinds


def _is_config_class(candidate: object) -> bool:
    return isinstance(candidate, type) and dataclasses.is_dataclass(candidate)


def _import_class(name: str, choice: Choice) -> type:
    """The dataclass `module:Class`, with all members that the contract of the choice asks for."""
    try:
        found: Any = import_named(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(f"{name!r} names a class as module:Class, but it cannot be imported: {error}") from error
    if not _is_config_class(found):
        raise LookupError(f"{name!r} must name a dataclass, but names {found!r}")
    cls: type = found
    try:
        members = {setting.name for setting in settings_of(cls)} | set(dir(cls))
    except TypeError as error:
        raise LookupError(f"the settings of {name!r} cannot be read: {error}") from error
    contract = [] if choice.contract is None else dir(choice.contract)
    asked = [each for each in contract if not each.startswith("_") or each == "__call__"]
    if missing := [each for each in asked if each not in members]:
        raise LookupError(
            f"expected in {name!r} the members of heedful's {getattr(choice.contract, '__name__', '')}, found none of "
            f"the name {cut(' or '.join(missing), 200)}. Name another class, or one of {', '.join(choice.names())}"
        )
    return cls
