"""BM25 over the words of a small catalogue, in memory."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable

K1, B = 0.9, 0.4
"""The values of the published index."""

MOST_FOUND = 50
"""Results of a search."""

_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """The words of a text, as searches and indexes see them."""
    return _WORD.findall(text.lower())


class WordIndex:
    """Which products hold which words. `texts`: (id, text) pairs."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self._ids: list[str] = []
        self._lengths: list[int] = []
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, (id, text) in enumerate(texts):
            counted = Counter(words_of(text))
            self._ids.append(id)
            self._lengths.append(counted.total())
            for word, count in counted.items():
                self._postings[word].append((number, count))
        self._mean = max(sum(self._lengths), 1) / max(len(self._ids), 1)

    def search(self, words: str, most: int = MOST_FOUND) -> list[str]:
        """The ids that hold any of the words, best first, equal scores by id."""
        scores: dict[int, float] = defaultdict(float)
        for word in sorted(set(words_of(words))):
            held = self._postings.get(word, ())
            weight = math.log(1 + (len(self._ids) - len(held) + 0.5) / (len(held) + 0.5))
            for number, count in held:
                length = self._lengths[number] / self._mean
                scores[number] += weight * count * (K1 + 1) / (count + K1 * (1 - B + B * length))
        best = heapq.nsmallest(most, ((-score, self._ids[number]) for number, score in scores.items()))
        return [id for _, id in best]
