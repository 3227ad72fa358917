"""The tokens that a scorer says it would read are the ids that go through its model."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from heedful.protocols import PlansReading
from heedful.scorers.hf import HFScorer
from heedful.scorers.pairs import tokens_of_pairs
from scored_pairs import case, llama, shared

METHODS = ("auto", "packed", "trie", "cached", "by_token", "plain")


@pytest.mark.parametrize("max_tokens", [1, 20, 100_000])
@pytest.mark.parametrize("method", METHODS)
def test_a_scorer_reads_as_many_ids_as_it_said(method: str, max_tokens: int) -> None:
    model, (prompts, thoughts, own) = shared(), case()
    thoughts = [*thoughts, [], thoughts[0], thoughts[0][:2]]
    own = [*own, 0, 0, 0]
    scorer = HFScorer(model, max_tokens=max_tokens, method=method)  # type: ignore[arg-type]
    assert isinstance(scorer, PlansReading)
    scorer.cross_score(prompts, thoughts, own, 1.0)  # its probes are behind it
    read: list[int] = []
    count = model.get_input_embeddings().register_forward_hook(lambda _, ids, __: read.append(ids[0].numel()))
    said = scorer.reading(prompts, thoughts)
    assert read == []
    scorer.cross_score(prompts, thoughts, own, 1.0)
    count.remove()
    assert said == sum(read)


def test_shared_beginnings_are_counted_once() -> None:
    scorer = HFScorer(llama())
    alike = [(1, 2, 3, 4, 5, 6, last) for last in (7, 8, 9)]
    # Two prompts of 3 tokens with the padding, then 6 tokens of all three thoughts together after each.
    assert scorer.reading([(1, 2, 3), (4, 5)], alike) == 2 * 3 + 2 * 6
    # Without anything in common: 2 tokens of each thought but the last one of each.
    assert scorer.reading([(1, 2, 3), (4, 5)], [(1, 2, 3), (4, 5, 6)]) == 2 * 3 + 2 * (2 + 2)


def test_pairs_that_share_nothing_cost_their_whole_length() -> None:
    # (3 + 2) and (3 + 1), (4 + 2) and (4 + 1); the repeated and the empty thought cost nothing.
    assert tokens_of_pairs([(1, 2, 3), (1, 2, 3, 4)], [(5, 6), (7,), (5, 6), ()]) == 5 + 4 + 6 + 5
