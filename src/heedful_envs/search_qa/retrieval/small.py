"""An index in memory, for up to some 100,000 passages: arrays of numpy, no other library.

A passage's score is BM25 in its text, and twice BM25 in its title, with Lucene's formula (k1 1.2, b 0.75):

    idf(t) = ln(1 + (N - n + 0.5) / (n + 0.5))          n: of N passages hold t
    score  = sum over t of idf f (k1 + 1) / (f + k1 (1 - b + b L / mean L))

What each term adds to each passage is computed once. A query adds up rows. Equal scores are ordered by the passages'
places in the corpus.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heedful_envs.search_qa.retrieval.passages import Found, Passage
from heedful_envs.search_qa.retrieval.terms import queried, terms_of

K1 = 1.2
B = 0.75
TITLE_WEIGHT = 2.0

MOST_PASSAGES = 100_000
"""Passages that are indexed in memory on the spot. More belong into an index on the disk."""

Array = Any
"""A numpy array. Its elements are named where it is made."""


@dataclass(frozen=True, slots=True)
class Postings:
    """What each term adds to which passages, term after term."""

    starts: Array
    """Where the rows of a term begin, one more than there are terms (int64)."""
    rows: Array
    """Places of passages in the corpus (uint32)."""
    weights: Array
    """What the term adds to the score of that passage (float64)."""

    def best(self, terms: Sequence[int], passages: int, most: int) -> list[tuple[int, float]]:
        """(place, score) of the best passages that hold any of the terms. Ties in the order of the corpus."""
        spans = [slice(self.starts[term], self.starts[term + 1]) for term in terms]
        if not spans or most < 1:
            return []
        rows = np.concatenate([self.rows[span] for span in spans])
        weights = np.concatenate([self.weights[span] for span in spans])
        scores = np.bincount(rows, weights=weights, minlength=passages)
        found = np.flatnonzero(scores > 0.0)
        if len(found) > most:
            last = np.partition(scores[found], len(found) - most)[len(found) - most]
            found = found[scores[found] >= last]
        found = found[np.argsort(-scores[found], kind="stable")][:most]
        return [(int(row), float(scores[row])) for row in found]


def count_terms(passages: Iterable[Passage]) -> tuple[Postings, dict[str, int], list[Passage]]:
    """The postings of passages, the number of each term, and the passages."""
    held: list[Passage] = []
    numbers: dict[str, int] = {}
    columns = [_Column() for _ in range(2)]
    for passage in passages:
        for column, text in zip(columns, (passage.title, passage.text), strict=True):
            column.add(len(held), terms_of(text), numbers)
        held.append(passage)
    weighted = [
        column.weighted(len(held), len(numbers), factor)
        for column, factor in zip(columns, (TITLE_WEIGHT, 1.0), strict=True)
    ]
    terms = np.concatenate([part[0] for part in weighted])
    order = np.argsort(terms, kind="stable")
    starts = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(np.bincount(terms, minlength=len(numbers)), out=starts[1:])
    rows = np.concatenate([part[1] for part in weighted])[order]
    weights = np.concatenate([part[2] for part in weighted])[order]
    return Postings(starts, rows, weights), numbers, held


class _Column:
    """How often which term stands in one field of which passage."""

    def __init__(self) -> None:
        self._terms, self._rows, self._counts, self._lengths = array("I"), array("I"), array("I"), array("I")

    def add(self, row: int, terms: list[str], numbers: dict[str, int]) -> None:
        self._lengths.append(len(terms))
        for term, count in Counter(terms).items():
            self._terms.append(numbers.setdefault(term, len(numbers)))
            self._rows.append(row)
            self._counts.append(count)

    def weighted(self, passages: int, terms: int, factor: float) -> tuple[Array, Array, Array]:
        """(number of the term, place of the passage, what the term adds) of every pair."""
        term, row = (np.array(each, np.uint32) for each in (self._terms, self._rows))
        count, lengths = np.array(self._counts, np.float64), np.array(self._lengths, np.float64)
        holders = np.bincount(term, minlength=terms)[term]
        mean = lengths.mean() if lengths.any() else 1.0
        norm = K1 * (1 - B + B * lengths[row] / mean)
        idf = np.log1p((passages - holders + 0.5) / (holders + 0.5))
        return term, row, factor * idf * count * (K1 + 1) / (count + norm)


class SmallIndex:
    """Passages and their postings. The same passages in the same order give the same results everywhere."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._postings, self._numbers, self._passages = count_terms(passages)

    def __len__(self) -> int:
        return len(self._passages)

    @property
    def numbers(self) -> Mapping[str, int]:
        """Term -> its number in the postings."""
        return self._numbers

    def search(self, query: str, most: int) -> list[Found]:
        """The best `most` passages, best first."""
        terms = [self._numbers[term] for term in queried(query) if term in self._numbers]
        best = self._postings.best(terms, len(self._passages), most)
        return [Found(self._passages[row], score) for row, score in best]
