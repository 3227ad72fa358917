"""BM25: which documents hold which words. In memory, or in a folder whose arrays are memory-mapped. numpy alone.

A document has one or more fields, each a list of terms. With Lucene's formula:

    idf(t) = ln(1 + (N - n + 0.5) / (n + 0.5))          n: of N documents hold t in this field
    score  = sum over fields and t of weight idf f (k1 + 1) / (f + k1 (1 - b + b L / mean L))

What each term adds to each document is computed once, so a query adds up rows. Equal scores are ordered by the places
of the documents. A folder gives the same scores as the memory, and is built block by block, in bounded memory.
"""

from __future__ import annotations

import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heedful_envs.row_files import mapped_array

Array = Any
"""A numpy array. Its elements are named where it is made."""

Terms = Sequence[str]
Postings = tuple[Array, Array, Array]
"""(number of the term, place of the document, how often) of every pair, sorted by term."""

_BLOCK = 50_000
"""Documents whose terms are held in memory while a folder is built."""


@dataclass(frozen=True, slots=True)
class Formula:
    """The constants of the formula, and the weight of each field."""

    k1: float
    b: float
    weights: tuple[float, ...] = (1.0,)


@dataclass(frozen=True, slots=True)
class Index:
    """What each term adds to which documents, term after term. Safe for several threads."""

    documents: int
    number: Callable[[str], int | None]
    """The number of a term. `None` if no document holds it."""
    starts: Array
    """Where the rows of a term begin, one more than there are terms (int64)."""
    rows: Array
    """Places of documents (uint32)."""
    weights: Array
    """What the term adds to the score of that document (float64)."""

    def __len__(self) -> int:
        return self.documents

    def best(self, terms: Iterable[str], most: int) -> list[tuple[int, float]]:
        """(place, score) of the best documents that hold any of the terms. Ties by place."""
        numbers = [number for term in terms if (number := self.number(term)) is not None]
        spans = [slice(self.starts[number], self.starts[number + 1]) for number in numbers]
        if not spans or most < 1:
            return []
        rows = np.concatenate([self.rows[span] for span in spans])
        weights = np.concatenate([self.weights[span] for span in spans])
        scores = np.bincount(rows, weights=weights, minlength=self.documents)
        found = np.flatnonzero(scores > 0.0)
        if len(found) > most:
            last = np.partition(scores[found], len(found) - most)[len(found) - most]
            found = found[scores[found] >= last]
        found = found[np.argsort(-scores[found], kind="stable")][:most]
        return [(int(row), float(scores[row])) for row in found]


def index_of(documents: Iterable[Sequence[Terms]], formula: Formula) -> Index:
    """An index in memory."""
    counted = _Counted(len(formula.weights))
    blocks = list(counted.blocks(documents))
    starts, rows, weights = _filled(counted, formula, blocks, lambda name, size, kind: np.zeros(size, kind))
    return Index(counted.documents, counted.numbers.get, starts, rows, weights)


def write_index(folder: Path, documents: Iterable[Sequence[Terms]], formula: Formula) -> int:
    """Write an index into a folder that exists. The number of documents."""
    counted = _Counted(len(formula.weights))
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        files: list[list[Path]] = []
        for number, block in enumerate(counted.blocks(documents)):
            files.append([Path(aside, f"{number}_{field}.npy") for field in range(len(block))])
            for file, postings in zip(files[-1], block, strict=True):
                np.save(file, np.array(postings))
        blocks = [[tuple(mapped_array(file)) for file in block] for block in files]
        starts, *mapped = _filled(
            counted,
            formula,
            blocks,
            lambda name, size, kind: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", kind, (max(size, 1),)),
        )
        for each in mapped:
            each.flush()
    terms = sorted((term.encode(), number) for term, number in counted.numbers.items())
    places = np.cumsum([0, *(len(term) for term, _ in terms)], dtype=np.int64)
    (folder / "terms.txt").write_bytes(b"".join(term for term, _ in terms) or b"\n")
    np.save(folder / "places.npy", places)
    np.save(folder / "numbers.npy", np.array([number for _, number in terms], np.uint32))
    np.save(folder / "starts.npy", starts)
    return counted.documents


def open_index(folder: Path, documents: int) -> Index:
    """The index of a folder, memory-mapped, so that processes share it."""
    starts, rows, weights = (mapped_array(folder / f"{name}.npy") for name in ("starts", "rows", "weights"))
    return Index(documents, _MappedTerms(folder).number, starts, rows, weights)


class _MappedTerms:
    """The sorted terms of a folder, found by halving."""

    def __init__(self, folder: Path) -> None:
        self._text = np.memmap(folder / "terms.txt", "u1", "r")
        self._places, self._numbers = (mapped_array(folder / f"{name}.npy") for name in ("places", "numbers"))

    def number(self, term: str) -> int | None:
        wanted, terms = term.encode(), range(len(self._numbers))
        place = bisect_left(terms, wanted, key=self._term)
        return int(self._numbers[place]) if place < len(terms) and self._term(place) == wanted else None

    def _term(self, place: int) -> bytes:
        return bytes(self._text[self._places[place] : self._places[place + 1]])


class _Counted:
    """How often which term is in which field of which document."""

    def __init__(self, fields: int) -> None:
        self.numbers: dict[str, int] = {}
        self.lengths = [array("I") for _ in range(fields)]
        """Terms of each document, by field."""

    @property
    def documents(self) -> int:
        return len(self.lengths[0])

    def blocks(self, documents: Iterable[Sequence[Terms]]) -> Iterator[list[Postings]]:
        """The postings of each field, for some documents at a time."""
        numbers, first, found = self.numbers, 0, [array("I") for _ in self.lengths]
        for fields in documents:
            for terms, lengths, tokens in zip(fields, self.lengths, found, strict=True):
                tokens.extend([numbers.setdefault(term, len(numbers)) for term in terms])
                lengths.append(len(terms))
            if self.documents - first == _BLOCK:
                yield self._postings(found, first)
                first, found = self.documents, [array("I") for _ in self.lengths]
        yield self._postings(found, first)

    def _postings(self, found: Sequence[array[int]], first: int) -> list[Postings]:
        block = []
        for tokens, lengths in zip(found, self.lengths, strict=True):
            rows = np.repeat(np.arange(len(lengths) - first), np.array(lengths[first:], np.int64))
            pairs, counts = np.unique(np.array(tokens, np.int64) * _BLOCK + rows, return_counts=True)
            terms, rows = np.divmod(pairs, _BLOCK)
            block.append((terms.astype(np.uint32), (rows + first).astype(np.uint32), counts.astype(np.uint32)))
        return block


def _filled(
    counted: _Counted,
    formula: Formula,
    blocks: Sequence[Sequence[Postings]],
    make: Callable[[str, int, type], Array],
) -> tuple[Array, Array, Array]:
    """Starts, rows and weights. `make`: an array of a name, a size and a type."""
    terms, documents = len(counted.numbers), counted.documents
    held_FV = np.zeros((len(formula.weights), terms), np.int64)
    for block in blocks:
        held_FV += [np.bincount(term, minlength=terms) for term, _, _ in block]
    idf_FV = np.log1p((documents - held_FV + 0.5) / (held_FV + 0.5))
    starts = np.zeros(terms + 1, np.int64)
    np.cumsum(held_FV.sum(0), out=starts[1:])
    rows, weights = make("rows", int(starts[-1]), np.uint32), make("weights", int(starts[-1]), np.float64)
    after = starts[:-1].copy()  # where the next row of each term goes
    for block in blocks:
        for field, (term, row, count) in enumerate(block):
            lengths = np.array(counted.lengths[field], np.float64)
            norm = formula.k1 * (1 - formula.b + formula.b * lengths / (lengths.sum() / max(len(lengths), 1) or 1.0))
            sizes = np.bincount(term, minlength=terms)
            to = after[term] + np.arange(len(term)) - (np.cumsum(sizes) - sizes)[term]
            rows[to] = row
            weights[to] = formula.weights[field] * idf_FV[field, term] * count * (formula.k1 + 1) / (count + norm[row])
            after += sizes
    return starts, rows, weights
