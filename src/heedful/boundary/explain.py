"""The help text of a command line: every setting with its documentation, its default and its choices.

It is made from the classes alone. Choices on the same command line decide which settings it explains.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from heedful.boundary.schema import (
    MISSING,
    Chosen,
    Kind,
    Many,
    Nested,
    Plain,
    Positional,
    inner_kinds,
    metavar,
    settings_of,
    spell,
)
from heedful.boundary.tree import Tree, class_in, walk

_INDENT = 26
"""Columns before the explanation of a flag."""

_GENERAL = (
    ("--config FILE", "Settings as JSON, all or a part; flags override them."),
    ("--print-config", "Print the resulting settings as JSON and exit."),
    ("-h, --help", "Explain the settings. Choices on the same command line decide which are shown."),
)
_HELP_ALONE = ("-h, --help", "Explain the command.")
_TRUST = (
    ("--trust NAME", "Import this module where a file names it as module:Class; or the word that a refusal names."),
    ("--trust-model-code MODEL", "Run the code that this model brings. May be repeated."),
)


def flag_of(path: Sequence[str]) -> str:
    """`("env", "shared_noise")` is `--env.shared-noise`."""
    return "--" + ".".join(path).replace("_", "-")


def negation_of(path: Sequence[str]) -> tuple[str, ...]:
    """The path that switches a bool off: `env.no_shared_noise`."""
    return (*path[:-1], f"no_{path[-1]}")


def is_switch(kind: Kind) -> bool:
    """Whether the flag needs no value and then means true."""
    return any(isinstance(each, Plain) and each.type is bool for each in inner_kinds(kind))


Described: TypeAlias = tuple[type, Tree]
"""A dataclass and the current values of its fields."""


def help_text(prog: str, description: str, words: Described | None, settings: Described | None) -> str:
    """The whole help: usage, description, the command's own words, and the settings with their current values."""
    width = min(max(shutil.get_terminal_size().columns, 60), 120)
    named = list(_words(*words, width)) if words else []
    usage = [prog, *(use for use, _ in named)]
    if settings:
        usage += ["[--config FILE]", "[--print-config]", "[--SETTING VALUE ...]"]
    # A stand-in for its spaces keeps what is in brackets on one line.
    kept = " ".join(part.replace(" ", "\0") for part in ["usage:", *usage])
    lines = [line.replace("\0", " ") for line in textwrap.wrap(kept, width, subsequent_indent="  ")]
    lines += ["", *_paragraphs(description, width), ""]
    for _, entry in named:
        lines += entry
    for flag, text in (*(_GENERAL if settings else [_HELP_ALONE]), *(_TRUST if words else ())):
        lines += _entry(flag, text, width)
    if not settings:
        return "\n".join(lines)
    for title, block in _sections(*settings, width):
        lines += ["", title, *block]
    notes = "Dashes and underscores are the same; lists are separated by commas or spaces."
    return "\n".join([*lines, "", *textwrap.wrap(notes, width)])


def _paragraphs(text: str, width: int) -> list[str]:
    """Text that fits the width; lines that are indented, such as examples, are kept as they are."""
    lines: list[str] = []
    for block in text.split("\n\n"):
        if lines:
            lines.append("")
        kept = all(line.startswith(" ") for line in block.splitlines())
        lines += block.splitlines() if kept else textwrap.wrap(" ".join(block.split()), width)
    return lines


def _words(cls: type, said: Tree, width: int) -> Iterator[tuple[str, list[str]]]:
    """Each of a command's own words: how the usage line shows it, and its entry."""
    docs = field_docs(cls)
    settings = sorted(settings_of(cls), key=lambda setting: not isinstance(setting.shown, Positional))
    for setting in settings:
        name = setting.shown.name if setting.shown else metavar(setting.kind)
        if isinstance(setting.shown, Positional):
            use = head = f"{name} ..." if isinstance(setting.kind, Many) else name
        elif is_switch(setting.kind):
            use = head = flag_of([setting.name])
        else:
            use = head = f"{flag_of([setting.name])} {name}"
        default, value = setting.default(), said.get(setting.name)
        told = docs.get(setting.name, "")
        if default is MISSING and value and isinstance(value, str):
            told = f"{told} (here: {value})"
        elif default is not MISSING and default is not False and default not in (None, (), ""):
            told = f"{told} ({_current(value)})"
        yield use if default is MISSING else f"[{use}]", _entry(head, told, width)


def _sections(cls: type, tree: Tree, width: int) -> list[tuple[str, list[str]]]:
    """(title, lines), in order: the plain settings of a level first, then each nested group with its own."""
    plain: list[str] = []
    groups: list[tuple[tuple[str, ...], str, list[str]]] = []
    owners: dict[tuple[str, ...], type] = {(): cls}
    for path, setting, value in walk(cls, tree):
        text = field_docs(owners[path[:-1]]).get(setting.name, "")
        block = next((lines for group, _, lines in reversed(groups) if group == path[:-1]), plain)
        inner = class_in(setting.kind, value)
        if inner is not None:
            owners[path] = inner
        if isinstance(setting.kind, Chosen):
            groups.append((path, flag_of(path)[2:], _choice(setting.kind, path, value, text, width)))
        elif isinstance(setting.kind, Nested):
            groups.append((path, flag_of(path)[2:], _wrap(text or paragraph(setting.kind.cls), width)))
        else:
            flag = f"{flag_of(path)} {metavar(setting.kind)}"
            if is_switch(setting.kind):
                flag = f"{flag_of(path)}, {flag_of(negation_of(path))}"
            block += _entry(flag, f"{text} ({_current(value)})".strip(), width)
    return [("settings", plain), *((title, block) for _, title, block in groups)]


def _choice(kind: Chosen, path: tuple[str, ...], value: object, text: str, width: int) -> list[str]:
    chosen = value.get("type") if isinstance(value, dict) else spell(value)
    stated = "required" if value is MISSING else f"default: {chosen}"
    lines = _entry(f"{flag_of(path)} NAME", f"{text} ({stated})".strip(), width)
    for name in kind.choice.names():
        try:
            summary = paragraph(kind.choice.find(name))
        except LookupError as error:
            summary = f"Not available: {error}"
        lines += _entry(f"  {'*' if name == chosen else ' '} {name}", summary, width)
    return lines + (_entry(f"  {'*' if value is None else ' '} none", "", width) if kind.optional else [])


def _current(value: object) -> str:
    if value is MISSING:
        return "required"
    if isinstance(value, list):
        items = [str(item.get("type", "{...}")) if isinstance(item, dict) else spell(item) for item in value]
        return f"default: {','.join(items) or 'empty'}"
    return f"default: {spell(value)}" if value != "" else "default: empty"


def _entry(flag: str, text: str, width: int) -> list[str]:
    lines = _wrap(text, width, _INDENT)
    head = f"  {flag}"
    if not lines:
        return [head.rstrip()]
    if len(head) + 2 > _INDENT:
        return [head, *lines]
    return [head.ljust(_INDENT) + lines[0].lstrip(), *lines[1:]]


def _wrap(text: str, width: int, indent: int = 2) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * indent, subsequent_indent=" " * indent)


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """Field name -> the string literal under it, on one line. Empty for a class without source.

    Inherited fields are described by the class that declares them.
    """
    docs: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        node = next((node for node in _classes_in(each.__module__) if node.name == each.__name__), None)
        for field, literal in itertools.pairwise(node.body if node else []):
            match field, literal:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = " ".join(text.split())
    return docs


def paragraph(cls: type) -> str:
    """The first paragraph of a class's docstring, on one line."""
    written = cls.__doc__ or ""
    # A dataclass without a docstring gets its signature as one.
    if written.startswith(f"{cls.__name__}("):
        return ""
    return " ".join(inspect.cleandoc(written).split("\n\n")[0].split())


@functools.cache
def _classes_in(module: str) -> list[ast.ClassDef]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
