"""The index in memory: BM25 as its formula says, and an order that never changes."""

from __future__ import annotations

import math
import random

import pytest

from heedful_envs.search_qa.passages import LONGEST_TERM, MOST_QUERIED, Passage, index_of, queried, terms_of

VOCABULARY = [f"w{number}" for number in range(40)]


def drawn(seed: int, count: int) -> list[Passage]:
    rng = random.Random(seed)
    words = lambda most: " ".join(rng.choices(VOCABULARY, k=rng.randint(0, most)))  # noqa: E731
    return [Passage(str(place), words(3), words(30)) for place in range(count)]


def slow_scores(passages: list[Passage], query: str) -> list[float]:
    """Twice BM25 in the title and once in the text, by the formula alone."""
    total = [0.0] * len(passages)
    for field, factor in (("title", 2.0), ("text", 1.0)):
        texts = [getattr(each, field).lower().split() for each in passages]
        mean = sum(map(len, texts)) / len(texts)
        for term in set(query.lower().split()):
            holding = sum(term in text for text in texts)
            idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            for place, text in enumerate(texts):
                often = text.count(term)
                total[place] += factor * idf * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * len(text) / mean))
    return total


def test_scores_are_those_of_the_formula() -> None:
    passages = drawn(1, 60)
    index = index_of(passages)
    rng = random.Random(2)
    for _ in range(100):
        query = " ".join(rng.choices([*VOCABULARY, "absent"], k=rng.randint(1, 6)))
        wanted = slow_scores(passages, query)
        found = index.scored(query, 10)
        for passage, score in found:
            assert score == pytest.approx(wanted[int(passage.id)], rel=1e-12)
        best = sorted((score for score in wanted if score > 0), reverse=True)[:10]
        assert [score for _, score in found] == pytest.approx(best, rel=1e-12)


def test_equal_scores_are_ordered_by_place() -> None:
    index = index_of(Passage(str(place), "", "fox and hen" if place % 2 else "owl") for place in range(30))
    assert [each.id for each in index.search("fox", 4)] == ["1", "3", "5", "7"]
    assert [each.id for each in index.search("hen fox fox", 100)] == [str(place) for place in range(1, 30, 2)]


def test_a_title_counts_beside_the_text() -> None:
    index = index_of(
        [Passage("a", "owl", "the elm"), Passage("b", "elm", "a long register of many people of a school")]
    )
    assert [each.id for each in index.search("elm", 2)] == ["b", "a"]


@pytest.mark.parametrize("query", ["", "   ", "absent", "!!!", "\ud800", "AND OR (", 'title:"x', "\x00", "*"])
def test_a_query_without_known_terms_finds_nothing(query: str) -> None:
    assert index_of([Passage("a", "fox", "hen")]).search(query, 3) == []
    assert index_of([]).search(query, 3) == []


def test_terms_are_lower_case_runs_of_letters_and_digits() -> None:
    assert terms_of("Jean-Luc's 2nd_run, ÉTÉ!") == ["jean", "luc", "s", "2nd", "run", "été"]
    assert terms_of("東京タワー 2020年") == [*"東京タワ", "ー", "2020", "年"]
    assert terms_of("x" * 150) == ["x" * LONGEST_TERM, "x" * LONGEST_TERM, "x" * 22]
    assert terms_of("Ab_c-9 é")[:3] == terms_of("Ab_c-9")


def test_a_query_has_a_limited_number_of_terms() -> None:
    assert len(queried(" ".join(map(str, range(100_000))))) == MOST_QUERIED
    assert queried("b a b") == ["a", "b"]
