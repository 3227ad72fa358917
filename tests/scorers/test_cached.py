"""Padded batches behind a shared cache: how they are cut, and that every way to misplace a token shows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from heedful.models.forward import states  # noqa: E402
from heedful.scorers import cached  # noqa: E402
from heedful.scorers.output_head import OutputHead  # noqa: E402
from scored_pairs import assert_noticed, case, granite, llama, naive, some_ids, trusted  # noqa: E402


def test_the_output_layer_is_applied_alone_unless_the_model_does_more_than_cap_or_scale_its_logits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, scaled, shifted = llama(), granite(), llama()
    assert OutputHead(model, 1.0).body is model.model
    assert OutputHead(scaled, 1.0).body is scaled.model
    forward = shifted.forward

    def bent(*ids: Any, **named: Any) -> Any:
        output = forward(*ids, **named)
        output.logits = output.logits + 0.01 * output.logits.abs()
        return output

    monkeypatch.setattr(shifted, "forward", bent)
    assert OutputHead(shifted, 1.0).body is shifted


@pytest.mark.parametrize("restart", [True, False])
def test_positions_off_by_one_or_from_zero_would_be_noticed(restart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    scorer = trusted(model, "cached")
    forward = model.model.forward

    def shifted(*args: Any, **named: Any) -> Any:
        cache = named.get("past_key_values")
        if cache is not None and cache.get_seq_length():
            start = 0 if restart else cache.get_seq_length() + 1
            named["position_ids"] = torch.arange(start, start + named["input_ids"].shape[1])[None]
        return forward(*args, **named)

    monkeypatch.setattr(model.model, "forward", shifted)
    assert_noticed(scorer, expected, prompts, thoughts, own)


def test_a_first_token_scored_by_another_prompt_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    scorer = trusted(model, "cached")
    read_prompts = cached.read_prompts

    def rolled(*group: Any) -> Any:
        cache, last_PH = read_prompts(*group)
        return cache, last_PH.roll(1, dims=0)

    monkeypatch.setattr(cached, "read_prompts", rolled)
    assert_noticed(scorer, expected, prompts, thoughts, own)


def test_a_thought_that_sees_the_one_before_it_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    scorer = trusted(model, "cached", max_tokens=1)
    update, share = states._Prefix.update, cached.shared
    first: dict[int, Any] = {}

    def written(self: Any, *own: Any, **named: Any) -> Any:
        self.keys, self.values = update(self, *own, **named)
        return self.keys, self.values

    monkeypatch.setattr(states._Prefix, "update", written)
    monkeypatch.setattr(cached, "shared", lambda cache, *rows: first.setdefault(id(cache), share(cache, *rows)))
    assert_noticed(scorer, expected, prompts, thoughts, own)


def test_a_prompt_cache_in_the_wrong_row_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = llama(), random.Random(4)
    prompts, thoughts = [some_ids(rng, 6) for _ in range(3)], [some_ids(rng, 4) for _ in range(2)]
    expected = naive(model, prompts, thoughts)
    scorer = trusted(model, "cached")
    own = [0, 0]
    np.testing.assert_allclose(scorer.cross_score(prompts, thoughts, own, 1.0).scores_MN, expected, rtol=0, atol=1e-10)
    continued = states._continued
    monkeypatch.setattr(states, "_continued", lambda prefix, own: continued(prefix.roll(1, dims=0), own))
    assert_noticed(scorer, expected, prompts, thoughts, own)


def test_passes_are_cut_where_padding_would_cost_more_than_a_pass() -> None:
    lengths = [11, 3, 0, 3, 11]
    # Read are 2, 2, 10 and 10 tokens. A pass costs 8 of 64: 4 + 20 + 2 x 8 = 40 in two passes, 40 + 8 = 48 in one.
    assert cached.plan_rows(lengths, budget=64, longest_prompt=1) == [[0, 4], [1, 3]]
    # A pass costs 125 of 1000: 24 + 2 x 125 in two passes, 40 + 125 in one.
    assert cached.plan_rows(lengths, budget=1000, longest_prompt=1) == [[1, 3, 0, 4]]
    # No two rows of 10 tokens fit 19; no two copies of a prompt of 600 positions fit 16 x 64.
    assert cached.plan_rows(lengths, budget=19, longest_prompt=1) == [[4], [0], [1, 3]]
    assert cached.plan_rows(lengths, budget=64, longest_prompt=600) == [[4], [0], [3], [1]]
