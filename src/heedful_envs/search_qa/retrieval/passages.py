"""What is searched and what is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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
