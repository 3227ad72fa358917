"""Prompts that calls share are read once while the weights stay, and no score moves by it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from heedful.scorers import kept  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from scored_pairs import assert_noticed, case, llama, naive, some_ids, truth, watch_reads  # noqa: E402

METHODS = ("packed", "trie", "cached", "by_token", "plain")


@pytest.mark.parametrize("method", METHODS)
def test_later_calls_score_as_pairs_do_whatever_was_read_before(method: str) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected, rng = naive(model, prompts, thoughts), random.Random(1)
    scorer = HFScorer(model, method=method)  # type: ignore[arg-type]
    with scorer.asking():
        # Some are read, then all in another order with others among them, then some that are padded to another length.
        for columns in ([0, 2], [4, 3, 2, 1, 0], [2, 4], [1], [3, 3, 0]):
            asked = [prompts[column] for column in columns] + [some_ids(rng, 9)]
            found = scorer.cross_score(asked, thoughts, own, 1.0).scores_MN
            np.testing.assert_allclose(np.array(found)[:, :-1], expected[:, columns], rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", ["packed", "cached", "by_token"])
def test_a_prompt_is_read_once_inside_and_again_after(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = llama(), random.Random(0)
    prompts, thoughts = [some_ids(rng, 7) for _ in range(4)], [some_ids(rng, 1)]  # one token: nothing else is read
    scorer = HFScorer(model, method=method)  # type: ignore[arg-type]
    assert scorer.method == method
    read = watch_reads(model, monkeypatch)
    with scorer.asking():
        for asked in (prompts[:2], prompts[:2], prompts, prompts[::-1]):
            scorer.cross_score(asked, thoughts, [0], 1.0)
    assert read == [(2, 7), (2, 7)]
    scorer.cross_score(prompts, thoughts, [0], 1.0)
    assert read[2:] == [(4, 7)]


def test_changed_weights_are_seen_after_the_context() -> None:
    model, (prompts, thoughts, own) = llama(), case()
    scorer = HFScorer(model)
    with scorer.asking():
        scorer.cross_score(prompts, thoughts, own, 1.0)
    with torch.no_grad():
        model.lm_head.weight[:5] += 0.1
        model.model.layers[0].self_attn.k_proj.weight[0] += 1.0
    with scorer.asking():
        found = scorer.cross_score(prompts, thoughts, own, 1.0).scores_MN
    assert np.abs(np.array(found) - truth()).max() > 1e-3
    np.testing.assert_allclose(found, naive(model, prompts, thoughts), rtol=0, atol=1e-10)


def test_no_more_is_kept_than_the_tokens_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = llama(), random.Random(0)
    prompts, thoughts = [some_ids(rng, 8) for _ in range(5)], [some_ids(rng, 1)]
    scorer = HFScorer(model, max_tokens=20)
    assert scorer.method == "packed"
    read = watch_reads(model, monkeypatch)
    with scorer.asking():
        for _ in range(2):
            scorer.cross_score(prompts, thoughts, [0], 1.0)
    assert read == [(2, 8), (2, 8), (1, 8), (2, 8), (1, 8)]


def test_a_row_of_another_prompt_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    scorer, padded = HFScorer(model), kept.padded

    def rolled(rows: Any) -> Any:
        return padded([(cache, (row + 1) % len(cache.layers[0].keys), tokens) for cache, row, tokens in rows])

    monkeypatch.setattr(kept, "padded", rolled)
    with scorer.asking():
        scorer.cross_score(prompts, thoughts, own, 1.0)
        assert_noticed(scorer, expected, prompts, thoughts, own)
