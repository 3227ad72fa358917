"""A command's line: first its own words, then the settings whose defaults these words decide.

A word is understood, or refused with a sentence and exit code 2. One help text explains both.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from heedful.boundary.command_line import Given, Naming, read_flags, read_settings, refuse, split, stray
from heedful.boundary.explain import field_docs, flag_of, help_text, is_switch
from heedful.boundary.foreign_text import tell
from heedful.boundary.schema import MISSING, RESERVED, Many, Positional, Setting, describe, settings_of
from heedful.boundary.tree import Problem, Tree, read, start
from heedful.boundary.trust import TRUST_FLAGS, trust_model_code, trust_typed

T = TypeVar("T")
W = TypeVar("W")

_MOST_VALUES: Mapping[tuple[str, ...], int] = {
    ("config",): 1,
    ("print_config",): 0,
    ("help",): 0,
    **{(name,): 1 for name in TRUST_FLAGS},
}
"""Values of the flags that every command has."""


class CommandLine(Generic[W]):
    """The typed line of one command, read in two steps.

    A flag of the command's own takes one value (several with commas), a switch takes none. So a bare word after it is
    a positional. A flag of the settings takes every word up to the next flag.
    """

    words: W
    """The command's own words."""

    def __init__(self, words: type[W], argv: Sequence[str], prog: str, more: str = "") -> None:
        """Read the command's own words; the docstring of `words` describes the command, `more` is added to it.

        Problems go to standard error and end the program with exit code 2. With `--help` a positional that is missing
        is filled with its example, since the help is then printed by `settings` or `end`.
        """
        self._cls: type = words
        self._prog = prog
        self._description = "\n\n".join(filter(None, (inspect.cleandoc(words.__doc__ or ""), more)))
        own = settings_of(words)
        flags: dict[tuple[str, ...], Setting] = {
            (setting.name,): setting for setting in own if not isinstance(setting.shown, Positional)
        }
        most = {**_MOST_VALUES} | {path: 0 if is_switch(setting.kind) else 1 for path, setting in flags.items()}
        self._flags = {setting.name for setting in flags.values()}
        problems: list[Problem] = []
        givens, bare = split(argv, most, by_user=True)
        self._givens = [given for given in givens if not _grants_trust(given, problems)]
        self.helping = any(given.path == ("help",) for given in self._givens)
        typed = [given for given in self._givens if given.path in flags]
        self._rest = [given for given in self._givens if given.path not in flags]
        # An unset variable of a shell gives an empty value, which must not mean the default or this folder.
        for given in [given for given in typed if most[given.path] and not "".join(given.values).strip(", ")]:
            setting = flags[given.path]
            value = setting.shown.name if setting.shown else describe(setting.kind)
            problems.append(Problem(given.flag, f"expected {value}, found nothing"))
            typed.remove(given)
        self._said: Tree = start(words, None) | read_flags(words, start(words, None), typed, problems)
        positional = [setting for setting in own if isinstance(setting.shown, Positional)]
        self._typed_words = self._place(positional, bare, problems)
        found = None if problems else read(words, self._said, problems)
        if problems:
            refuse(problems, {given.path for given in typed}, Naming(prog, prog))
        self.words = cast(W, found)

    def _place(self, positional: Sequence[Setting], bare: Sequence[str], problems: list[Problem]) -> list[str]:
        """Give the bare words to the positional fields, in order; returns those that were typed."""
        left = [word for word in bare if not word.startswith("-")]
        problems += [stray(word) for word in bare if word.startswith("-")]
        taken = []
        for setting in positional:
            shown = setting.shown
            assert isinstance(shown, Positional)
            several = isinstance(setting.kind, Many)
            words = left if several else left[:1]
            left = left[len(words) :]
            taken += words
            if not all(word.strip() for word in words):
                problems.append(Problem("", f"expected {shown.name}, found an empty word"))
            elif words:
                self._said[setting.name] = words if several else words[0]
            elif setting.default() is MISSING and self.helping:
                self._said[setting.name] = [] if several else shown.example
            elif setting.default() is MISSING:
                told = field_docs(self._cls).get(setting.name, "")
                problems.append(Problem("", f"expected {shown.name} after `{self._prog}`. {shown.name}: {told}"))
        problems += [stray(word) for word in left]
        return taken

    def settings(self, cls: type[T], default: T | None, also: Mapping[str, Any] | None = None) -> T:
        """Read the rest of the line as settings; `also` holds settings that a word of the command stands for.

        A value of `also` that is None is left out. Problems, `--help` and `--print-config` end the program.
        """
        more = [Given(f"--{name}", (str(value),)) for name, value in (also or {}).items() if value is not None]
        prog = " ".join([self._prog, *self._typed_words])
        own = [word for given in self._givens if given not in self._rest for word in (given.flag, *given.values)]

        flags = [flag_of((name,)) for name in (*sorted(self._flags), *RESERVED, *TRUST_FLAGS)]
        naming = Naming(prog, " ".join([prog, *own]), flags)

        def explain(tree: Tree) -> str:
            return help_text(self._prog, self._description, (self._cls, self._said), (cls, tree))

        return read_settings(cls, default, [*self._rest, *more], [], naming, explain)

    def end(self) -> None:
        """End the line of a command without settings: print the help it asks for, or refuse what is left."""
        if self.helping:
            tell(self.help())
            raise SystemExit(0)
        problems: list[Problem] = []
        read_flags(self._cls, self._said, self._rest, problems, reserved=())
        if problems:
            refuse(problems, {given.path for given in self._rest}, Naming(self._prog, self._prog))

    def help(self) -> str:
        """The help text of the command's own words."""
        return help_text(self._prog, self._description, (self._cls, self._said), None)

    def typed(self, name: str) -> str | None:
        """The value typed for a flag of the settings, before they are read; the last one counts."""
        values = [given.values[0] for given in self._rest if flag_of(given.path) == f"--{name}" and given.values]
        return values[-1] if values else None

    def touches(self, *names: str) -> bool:
        """Whether a flag of the settings was typed whose first part is one of these names."""
        return any(given.path[0] in names for given in self._rest)

    def typed_settings(self) -> list[str]:
        """The flags of the settings that were typed, without their dashes, such as `filter.p`; not `--config`."""
        return [flag_of(given.path).removeprefix("--") for given in self._rest if given.path not in _MOST_VALUES]

    def besides(self, name: str) -> list[str]:
        """What was typed besides one of the command's own flags: other flags and bare words."""
        return [*self._typed_words, *(given.flag for given in self._givens if given.path != (name,))]


def _grants_trust(given: Given, problems: list[Problem]) -> bool:
    """Whether this is one of the flags of trust, which is then applied."""
    if given.path == ("trust",) and given.values:
        trust_typed(given.values[0])
    elif given.path == ("trust_model_code",) and given.values:
        trust_model_code(given.values[0])
    elif given.path[0] in TRUST_FLAGS:
        problems.append(Problem(given.flag, f"expected {TRUST_FLAGS[given.path[0]]}, found nothing"))
    return given.path[0] in TRUST_FLAGS
