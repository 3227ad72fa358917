"""A command line made from a configuration: one flag per setting, choices by name.

`--filter top_k --filter.k 4` means the JSON `{"filter": {"type": "top_k", "k": 4}}`, merged over the default. Flags
that choose are read first, since they decide which others there are. Of two equal flags the last one counts. A line
that cannot be applied ends in one sentence per problem and exit code 2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from heedful.boundary.explain import flag_of, help_text, is_switch, negation_of
from heedful.boundary.foreign_text import complain, cut, tell
from heedful.boundary.jsontext import read_json
from heedful.boundary.schema import (
    RESERVED,
    Chosen,
    Either,
    Fixed,
    Kind,
    Many,
    Nested,
    OneOf,
    Plain,
    describe,
    did_you_mean,
    inner_kinds,
    spell,
)
from heedful.boundary.tree import Problem, Tree, class_in, fits, merge, read, start, to_json, walk
from heedful.boundary.trust import trust_typed

T = TypeVar("T")

SYNONYMS: Mapping[str, str] = {"sampler": "policy"}
"""Second names of settings, as first part of a flag."""


@dataclass(frozen=True, slots=True)
class Given:
    """One flag as typed, with the values that follow it."""

    flag: str
    values: tuple[str, ...]
    by_user: bool = False
    """Typed by the user, so code that a value names may be imported; not read from a file."""

    @property
    def path(self) -> tuple[str, ...]:
        first, *rest = self.flag.removeprefix("--").replace("-", "_").split(".")
        return (SYNONYMS.get(first, first), *rest)


@dataclass(frozen=True, slots=True)
class Naming:
    """How messages name the command line."""

    prog: str
    """Begins every line that says what is wrong."""
    line: str
    """What to add `--help` to for an explanation."""
    flags: Sequence[str] = ()
    """Flags that are no settings, for the hint at an unknown one."""


def parse(
    cls: type[T], default: T | None, argv: Sequence[str], prog: str, description: str, line: str | None = None
) -> T:
    """Read a command line (without the program's name) into a configuration.

    Later wins: the default, then each `--config FILE` (JSON, may be partial), then the flags. `--help` and
    `--print-config` print to standard output and exit with code 0; problems go to standard error, with code 2.
    `line`: what `--help` is added to, where that is not `prog`.
    """
    givens, bare = split(argv, {})
    problems = [stray(word) for word in bare]
    naming = Naming(prog, line or prog)
    return read_settings(
        cls, default, givens, problems, naming, lambda tree: help_text(prog, description, None, (cls, tree))
    )


def read_settings(
    cls: type[T],
    default: T | None,
    givens: Sequence[Given],
    problems: list[Problem],
    naming: Naming,
    explain: Callable[[Tree], str],
) -> T:
    """Do what `parse` does with flags that are split already; `explain` makes the help for a tree of settings."""
    tree = start(cls, default)
    for given in givens:
        if given.path == ("config",):
            tree = _merge_file(cls, tree, given, problems)
    tree = _choose(cls, tree, givens)
    if any(given.path == ("help",) for given in givens):
        tell(explain(tree))
        raise SystemExit(0)
    tree = merge(cls, tree, read_flags(cls, tree, givens, problems, others=naming.flags))
    found = cast(T, read(cls, tree, problems))
    if problems:
        refuse(problems, {given.path for given in givens}, naming)
    if any(given.path == ("print_config",) for given in givens):
        tell(json.dumps(to_json(found), indent=2, allow_nan=False))
        raise SystemExit(0)
    return found


def split(
    argv: Sequence[str], most: Mapping[tuple[str, ...], int], by_user: bool = False
) -> tuple[list[Given], list[str]]:
    """The flags with the values that follow them, and the bare words.

    `most` says how many values a flag takes at most; a flag that is not in it takes every word up to the next flag.
    `by_user`: the user typed them, and no file holds them. A quoted word such as `"--algorithm.kl 0.1"` is a value.
    """
    givens: list[Given] = []
    bare = []
    for argument in argv:
        if argument == "-h":
            givens.append(Given("--help", (), by_user))
        elif argument.startswith("--") and " " not in argument.partition("=")[0]:
            flag, equals, value = argument.partition("=")
            givens.append(Given(flag, (value,) if equals else (), by_user))
        elif givens and len(givens[-1].values) < most.get(givens[-1].path, len(argv)):
            givens[-1] = replace(givens[-1], values=(*givens[-1].values, argument))
        else:
            bare.append(argument)
    return givens, bare


def stray(word: str) -> Problem:
    """The problem of a bare word that has no place on the line."""
    return Problem("", f"unexpected argument {word!r}; settings are given as --name value")


def _merge_file(cls: type, tree: Tree, given: Given, problems: list[Problem]) -> Tree:
    if len(given.values) != 1:
        problems.append(Problem("--config", f"expected one file, found {' '.join(given.values) or 'nothing'}"))
        return tree
    name, overrides = given.values[0], None
    try:
        overrides = read_json(Path(name), pipes=True)
        said = "" if isinstance(overrides, dict) else f"a JSON object in {name}, found {type(overrides).__name__}"
    except OSError as error:
        said = f"a JSON file, but {name} cannot be read: {error.strerror}"
    except ValueError as error:
        said = f"JSON in {name}, but it cannot be parsed: {error}"
    if said:
        problems.append(Problem("--config", f"expected {said}"))
    return cast(Tree, tree if said else merge(cls, tree, overrides))


def _choose(cls: type, tree: Tree, givens: Sequence[Given]) -> Tree:
    """Apply the flags that choose, outer ones first: what they choose may bring choices of its own."""
    wanted = {given.path: given for given in givens if given.values}
    chosen: Tree = {}
    done: set[tuple[str, ...]] = set()
    while True:
        merged: Tree = merge(cls, tree, chosen)
        choices = {path: setting.kind for path, setting, _ in walk(cls, merged) if isinstance(setting.kind, Chosen)}
        path = next((path for path in choices if path in wanted and path not in done), None)
        if path is None:
            return merged
        done.add(path)
        given = wanted[path]
        if given.by_user and ":" in given.values[0]:
            trust_typed(given.values[0])
        _place(chosen, path, _interpret(choices[path], given.values[0]))


def read_flags(
    cls: type,
    tree: Tree,
    givens: Sequence[Given],
    problems: list[Problem],
    reserved: Sequence[str] = RESERVED,
    others: Sequence[str] = (),
) -> Tree:
    """The settings that the flags set, as a partial tree; flags named in `reserved` are left to others.

    `others`: flags that are no settings, for the hint at an unknown one.
    """
    settings = {path: setting for path, setting, _ in walk(cls, tree)}
    negations = {negation_of(path): path for path, setting in settings.items() if is_switch(setting.kind)}
    flags: Tree = {}
    for given in givens:
        if given.path in [(name,) for name in reserved]:
            continue
        if given.path in negations and given.path not in settings:
            if given.values:
                problems.append(Problem(given.flag, f"expected no value, found {' '.join(given.values)}"))
            _place(flags, negations[given.path], False)
        elif given.path in settings:
            kind = settings[given.path].kind
            wrong = _misfit(given, kind, cls, tree)
            if given.by_user and given.values and (word := settings[given.path].word(given.values[0])):
                trust_typed(word)
            if wrong:
                problems.append(Problem(given.flag, wrong))
            elif not isinstance(kind, Chosen):
                _place(flags, given.path, _value(kind, given.values))
        else:
            known = [flag_of(path) for path, setting in settings.items() if not isinstance(setting.kind, Nested)]
            if sentence := _unknown(given, cls, tree, [*others, *known]):
                problems.append(Problem(given.flag, sentence))
    return flags


def _misfit(given: Given, kind: Kind, cls: type, tree: Tree) -> str:
    """The sentence about a wrong number of values; empty if it is right."""
    if isinstance(kind, Nested):
        inner = [flag_of(path) for path, _, _ in walk(cls, tree) if path[:-1] == given.path]
        return f"is a group of settings; set {', '.join(inner)}"
    if any(isinstance(item, Nested) for item in _items(kind)):
        return "is a list of objects; set it in a file given with --config"
    if _items(kind):
        return ""
    if not given.values and not is_switch(kind):
        short = f"one of {', '.join(kind.choice.names())}" if isinstance(kind, Chosen) else describe(kind)
        return f"expected {short}, found nothing"
    return f"expected one value, found {' '.join(given.values)}" if given.values[1:] else ""


def _unknown(given: Given, cls: type, tree: Tree, known: Sequence[str]) -> str:
    """The sentence about an unknown flag; empty if the choice it belongs to is refused anyway."""
    for path, setting, value in walk(cls, tree):
        kind = setting.kind
        if not isinstance(kind, Chosen) or path != given.path[: len(path)]:
            continue
        chosen = value.get("type") if isinstance(value, dict) else "none"
        if isinstance(value, dict) and class_in(kind, value) is None:
            return ""
        owners = kind.choice.owners(given.path[len(path)])
        if owners and chosen not in owners:
            belongs = " or ".join(f"{flag_of(path)} {owner}" for owner in owners)
            return f"belongs to {belongs}, but {flag_of(path)} is {chosen}"
    own = flag_of(given.path)
    last = own.removeprefix("--").split(".")[-1]
    deeper = [flag for flag in known if flag.endswith(f".{last}")]
    hint = f"; did you mean {deeper[0]}?" if deeper else did_you_mean(own, known)
    return f"unknown flag{hint}"


def _value(kind: Kind, texts: tuple[str, ...]) -> Any:
    if not texts and is_switch(kind):
        return True
    items = _items(kind)
    if not items:
        return _interpret(kind, texts[0])
    if isinstance(kind, Either) and texts == ("none",):
        return None
    words = [word for text in texts for word in text.split(",") if word]
    item_kinds = items if len(items) == len(words) else [items[0]] * len(words)
    return [_interpret(item, word) for item, word in zip(item_kinds, words, strict=True)]


def _interpret(kind: Kind, text: str) -> Any:
    """The JSON value that a word means; a word that does not fit stays text, and `read` refuses it."""
    match kind:
        case Plain(type=plain) if plain is bool:
            return {"true": True, "false": False}.get(text.lower(), text)
        case Plain(type=plain) if plain in (int, float):
            try:
                return plain(text)
            except ValueError:
                return text
        case OneOf():
            return next((written for written, _ in kind.options if spell(written) == text), text)
        case Either():
            # Text fits everything, so it comes last.
            members = sorted(kind.kinds, key=lambda member: member in (Plain(str), Plain(Path)))
            values = [(member, _interpret(member, text)) for member in members]
            return next((value for member, value in values if fits(member, value)), text)
        case Chosen():
            return None if kind.optional and text == "none" else {"type": text}
        case _:
            return text


def _items(kind: Kind) -> list[Kind]:
    """The kinds of the items of a list; empty for a kind that is no list."""
    for each in inner_kinds(kind):
        if isinstance(each, Many):
            return [each.item]
        if isinstance(each, Fixed):
            return list(each.items)
    return []


def _place(tree: Tree, path: Sequence[str], value: object) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def refuse(problems: Sequence[Problem], given: set[tuple[str, ...]], naming: Naming) -> NoReturn:
    """Say what is wrong, with each setting as it was typed, and exit with code 2."""
    lines = []
    for problem in problems:
        path = tuple(problem.path.partition("[")[0].removesuffix(".type").split("."))
        where = flag_of(path) if path in given else problem.path
        lines.append(str(Problem(where, problem.sentence)))
    complain("\n".join(cut(f"{naming.prog}: {line}") for line in lines))
    complain(f"See `{cut(naming.line, 200)} --help` for all settings.")
    raise SystemExit(2)
