"""What is searched and what is found, and the terms of both.

The terms of a text are its lower-cased runs of letters and digits, of every script. Chinese and Japanese characters are
a term each. There is no stemming and no list of stop words. Everything else separates, so no text of an agent can be an
invalid query.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from heedful_envs.bm25 import Formula, index_of

FORMULA = Formula(k1=1.2, b=0.75, weights=(2.0, 1.0))
"""Of titles and texts."""

LONGEST_TERM = 64
"""Characters. A longer run is cut into several terms."""

MOST_QUERIED = 64
"""Different terms of a query that count: the first ones."""

_ASCII_TERM = re.compile(f"[a-z0-9]{{1,{LONGEST_TERM}}}")
_IDEOGRAM = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TERM = re.compile(rf"[{_IDEOGRAM}]|[^\W_{_IDEOGRAM}]{{1,{LONGEST_TERM}}}")


def terms_of(text: str) -> list[str]:
    """The terms of a text in their order."""
    return (_ASCII_TERM if text.isascii() else _TERM).findall(text.lower())


def queried(text: str) -> list[str]:
    """The different terms of a query, in alphabetical order, so that sums of scores are the same each time."""
    return sorted(list(dict.fromkeys(terms_of(text)))[:MOST_QUERIED])


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of a corpus."""

    id: str
    title: str
    """May be empty."""
    text: str

    @property
    def contents(self) -> str:
        """Title and text as Search-R1 and FlashRAG write them into one field."""
        return f'"{self.title}"\n{self.text}' if self.title else self.text

    @property
    def terms(self) -> tuple[list[str], list[str]]:
        """The terms of title and text."""
        return terms_of(self.title), terms_of(self.text)


@dataclass(frozen=True, slots=True)
class Found:
    """One passage that a search found."""

    passage: Passage
    score: float


class Searcher(Protocol):
    """An index, or a server of one."""

    def search(self, query: str, most: int) -> list[Found]:
        """The best `most` passages, best first. Any text is a query."""
        ...


class SmallIndex:
    """An index in memory. The same passages in the same order give the same results everywhere."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._passages = list(passages)
        self._index = index_of((passage.terms for passage in self._passages), FORMULA)

    def __len__(self) -> int:
        return len(self._passages)

    def search(self, query: str, most: int) -> list[Found]:
        """The best `most` passages, best first."""
        return [Found(self._passages[place], score) for place, score in self._index.best(queried(query), most)]
