"""Text that comes from outside, made safe for a terminal: logs, observations, replies, servers, flags, file names.

A terminal obeys control characters. They can hide or forge lines, change the title, or answer in the user's name. Bidi
controls and characters without width make a line read as another one. All of these are shown as escapes (`\\x1b`).
Letters of every script, combining marks and emoji stay as they are.
"""

from __future__ import annotations

import re
import reprlib
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TextIO

LONGEST_MESSAGE = 4000
"""Characters of a message of error."""

LONGEST_SHOWN = 20_000
"""Characters of an observation, or of another text of an episode, that a terminal shows."""

MOST_NAMES = 20
"""Names of a list that are told."""

_VISIBLE_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Signs of Arabic, Syriac and Kaithi that Unicode counts as formats and that are written."""

_JOINERS = "\u200c\u200d"
"""Between letters of some scripts and between emoji they belong to the spelling."""

_FLAG = re.compile("(\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{1,8}\U000e007f)")
"""A flag of a region, whose name is spelled in characters that are hidden everywhere else."""

_SUSPECT = re.compile(
    "[^\t\n\x20-\x7e\xa1-\xac\xae-\u05ff\u0606-\u061b\u061d-\u06dc\u06de-\u070e\u0710-\u0889\u0900-\u180d\u1810-\u1fff"
    "\u2010-\u2027\u2030-\u205e\u2070-\ud7ff\uf900-\ufdff\ufe00-\ufefe\uff00-\uffef]"
)
"""Characters that may have to be escaped. Each is looked up, and most texts have none."""

_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 3
_BRIEF.maxlist = _BRIEF.maxtuple = _BRIEF.maxdict = 6
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 78


def clean(text: str) -> str:
    """`text` with every control, bidi and hidden character written as an escape. Newlines and tabs stay."""
    parts = _FLAG.split(text) if _SUSPECT.search(text) else [text]
    return "".join(part if place % 2 else _SUSPECT.sub(_escaped, part) for place, part in enumerate(parts))


def clean_line(text: str) -> str:
    """The same with escapes for newlines and tabs, too: a name, which an environment may have given."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def _escaped(found: re.Match[str]) -> str:
    character, text, place = found[0], found.string, found.start()
    plain = character in _VISIBLE_FORMATS or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    if character in _JOINERS:
        # It may be spelling between letters or marks of a script beyond Latin and Greek, and between symbols.
        around = text[place - 1 : place] + text[place + 1 : place + 2]
        spelling = (each > "\u0590" and unicodedata.category(each) in ("Lo", "Mn", "Mc", "So", "Sk") for each in around)
        plain = len(around) == 2 and all(spelling)
    return character if plain else character.encode("unicode_escape").decode("ascii")


def encodable(text: str) -> str:
    """Text with lone surrogates, which UTF-8 cannot encode, as backslash escapes. Other text is unchanged.

    An environment may show such a text. Tokenizers and files take none.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def listed(names: Iterable[object], most: int = MOST_NAMES, between: str = ", ") -> str:
    """Names with commas between them, a long list cut with the number of the others."""
    names = list(names)
    said = between.join(str(name) for name in islice(names, most))
    return said if len(names) <= most else f"{said} and {len(names) - most:,} more"


def cut(text: str, most: int = LONGEST_MESSAGE) -> str:
    """`text`, or its beginning with the number of all characters."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters in all)"


def brief(value: object) -> str:
    """A value of a stranger as short text. Long and deep ones are cut before they are written out."""
    text = _BRIEF.repr(value[:100] if isinstance(value, bytes) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def where_apart(one: Sequence[Any], other: Sequence[Any], most: int = 8) -> tuple[Sequence[Any], Sequence[Any]]:
    """At most so many items of both, around the first one in which they differ.

    >>> where_apart([1, 2, 3, 4, 5], [1, 2, 3, 9], most=4)
    ([2, 3, 4, 5], [2, 3, 9])
    """
    pairs = enumerate(zip(one, other, strict=False))
    first = next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))
    start = max(0, first - most // 2)
    return one[start : start + most], other[start : start + most]


def shown(text: str) -> str:
    """A text of an episode, not longer than a person scrolls back. An environment server may send 64 MiB."""
    return cut(text, LONGEST_SHOWN)


def tell(text: object, file: TextIO | None = None) -> None:
    """Print a line that may hold foreign text. `file`: standard output, if not given."""
    print(clean(str(text)), file=sys.stdout if file is None else file, flush=True)


def complain(text: str) -> None:
    """Print a message of error: cleaned, and not longer than a person reads. Nobody sees it on a full or closed one."""
    with suppress(OSError):
        tell(cut(clean(text)), sys.stderr)
