"""The arrays of a small index on the disk. They are memory-mapped, so that processes share them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from heedful_envs.search_qa.retrieval.passages import Passage
from heedful_envs.search_qa.retrieval.small import Postings, count_terms
from heedful_envs.search_qa.retrieval.store import DamagedIndex

TERMS, TERM_PLACES = "terms.txt", "term_places.u64"
STARTS, ROWS, WEIGHTS = "starts.i64", "rows.u32", "weights.f64"


def write_small(folder: Path, passages: Iterable[Passage]) -> int:
    """Count the terms of all passages and write the arrays. The number of passages."""
    postings, numbers, held = count_terms(passages)
    names = sorted(numbers, key=lambda term: term.encode())
    order = np.array([numbers[term] for term in names], np.int64)
    counts = np.diff(postings.starts)
    starts = np.zeros(len(names) + 1, "<i8")
    np.cumsum(counts[order], out=starts[1:])
    gathered = np.repeat(postings.starts[order] - starts[:-1], counts[order]) + np.arange(starts[-1])
    encoded = [term.encode() for term in names]
    places = np.zeros(len(names) + 1, "<u8")
    np.cumsum([len(term) for term in encoded], out=places[1:])
    (folder / TERMS).write_bytes(b"".join(encoded))
    for name, array in (
        (TERM_PLACES, places),
        (STARTS, starts),
        (ROWS, postings.rows[gathered].astype("<u4")),
        (WEIGHTS, postings.weights[gathered].astype("<f8")),
    ):
        (folder / name).write_bytes(array.tobytes())
    return len(held)


class SmallFiles:
    """A small index from its files: the best rows of a query."""

    def __init__(self, folder: Path, passages: int) -> None:
        self._passages = passages
        self._terms = _Terms(folder)
        self._postings = Postings(*(_mapped(folder / name) for name in (STARTS, ROWS, WEIGHTS)))
        rows, weights = self._postings.rows, self._postings.weights
        fits = (
            len(rows) == len(weights)
            and bool(((weights > 0) & (weights < np.inf)).all())
            and rows.max(initial=0) < passages
        )
        if not fits or not _divides(self._postings.starts, len(self._terms) + 1, len(rows)):
            raise DamagedIndex(f"expected the places and weights of {passages:,} passages, found other numbers")

    def best(self, terms: Sequence[str], most: int) -> list[tuple[int, float]]:
        """(place, score) of the best passages, best first."""
        numbers = [number for term in terms if (number := self._terms.number(term)) is not None]
        return self._postings.best(numbers, self._passages, most)


class _Terms:
    """The sorted terms, found by halving."""

    def __init__(self, folder: Path) -> None:
        self._text = _mapped(folder / TERMS, "u1")
        self._places = _mapped(folder / TERM_PLACES)
        if not _divides(self._places, len(self._places), len(self._text)):
            raise DamagedIndex(f"expected in {TERM_PLACES} where the terms of {TERMS} begin, found other numbers")

    def __len__(self) -> int:
        return len(self._places) - 1

    def __getitem__(self, number: int) -> bytes:
        return bytes(self._text[int(self._places[number]) : int(self._places[number + 1])])

    def number(self, term: str) -> int | None:
        wanted = term.encode()
        number = bisect_left(self, wanted)
        return number if number < len(self) and self[number] == wanted else None


def _divides(starts: np.ndarray, count: int, end: int) -> bool:
    """Whether there are so many starts, and they lead from 0 to `end` in order."""
    return len(starts) == count > 0 and starts[0] == 0 and starts[-1] == end and bool((starts[1:] >= starts[:-1]).all())


def _mapped(path: Path, kind: str = "") -> np.ndarray:
    """The array of a file. An empty file cannot be mapped."""
    kind = kind or f"<{path.suffix[1]}{int(path.suffix[2:]) // 8}"
    return np.memmap(path, kind, "r") if path.stat().st_size else np.zeros(0, kind)
