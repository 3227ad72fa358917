"""BM25 over the words of a large catalogue, in the tables of its SQLite file.

Products are indexed in blocks, so preparing needs memory for one block only. A row of the table `words` holds where one
word is in one block. A search reads the rows of its words and adds up scores in an array.
"""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections import Counter, defaultdict

import numpy as np

from heedful_envs.shop.catalogue.search import K1, B, words_of

BLOCK = 20_000
"""Products of a block."""

SCHEMA = """
CREATE TABLE words (word TEXT, block INTEGER, places BLOB, counts BLOB, PRIMARY KEY (word, block)) WITHOUT ROWID;
CREATE TABLE lengths (block INTEGER PRIMARY KEY, lengths BLOB);
"""


class Indexer:
    """Adds texts in the order of their places, from 0."""

    def __init__(self, tables: sqlite3.Connection) -> None:
        self._tables, self._block, self._place = tables, 0, 0
        self._clear()

    def _clear(self) -> None:
        self._postings: dict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("I"), array("H")))
        self._lengths = array("I")

    def add(self, text: str) -> None:
        counted = Counter(words_of(text))
        for word, count in counted.items():
            places, counts = self._postings[word]
            places.append(self._place)
            counts.append(min(count, 65535))
        self._lengths.append(counted.total())
        self._place += 1
        if len(self._lengths) == BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write the block that is open."""
        rows = ((word, self._block, *map(_bytes, self._postings[word])) for word in sorted(self._postings))
        self._tables.executemany("INSERT INTO words VALUES (?, ?, ?, ?)", rows)
        self._tables.execute("INSERT INTO lengths VALUES (?, ?)", (self._block, _bytes(self._lengths)))
        self._block += 1
        self._clear()


def _bytes(numbers: array[int]) -> bytes:
    kind = "<u4" if numbers.typecode == "I" else "<u2"
    return np.asarray(numbers).astype(kind).tobytes()


class Lengths:
    """The number of words of every product."""

    def __init__(self, tables: sqlite3.Connection) -> None:
        blobs = [blob for (blob,) in tables.execute("SELECT lengths FROM lengths ORDER BY block")]
        lengths = np.frombuffer(b"".join(blobs), "<u4").astype(np.float32)
        mean = float(lengths.mean(dtype=np.float64)) if len(lengths) else 1.0
        self.count = len(lengths)
        self.norm = K1 * (1 - B + B * lengths / (mean or 1.0))


def best(tables: sqlite3.Connection, lengths: Lengths, words: str, most: int) -> list[int]:
    """The places of the best products that hold any of the words, ties by place."""
    scores = np.zeros(lengths.count)
    for word in sorted(set(words_of(words))):
        blobs = tables.execute("SELECT places, counts FROM words WHERE word = ? ORDER BY block", (word,)).fetchall()
        if not blobs:
            continue
        places = np.frombuffer(b"".join(one for one, _ in blobs), "<u4")
        counts = np.frombuffer(b"".join(one for _, one in blobs), "<u2").astype(np.float64)
        weight = math.log(1 + (lengths.count - len(places) + 0.5) / (len(places) + 0.5))
        scores[places] += weight * counts * (K1 + 1) / (counts + lengths.norm[places])
    found = np.flatnonzero(scores > 0.0)
    if len(found) > most:
        last = np.partition(scores[found], len(found) - most)[len(found) - most]
        found = found[scores[found] >= last]
    return [int(place) for place in found[np.argsort(-scores[found], kind="stable")][:most]]
