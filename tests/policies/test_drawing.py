"""Draws from wide vocabularies have the distribution, log-probabilities and entropies of the plain way."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from heedful.policies.drawing import WIDE, draw, draw_narrow, draw_wide  # noqa: E402


def generator(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


def some_logits(rows: int, vocabulary: int) -> Any:
    logits_BV = 3 * torch.randn(rows, vocabulary, generator=generator(1))
    logits_BV[:, ::7] = -torch.inf
    return logits_BV


@pytest.mark.parametrize("vocabulary", [3, 256, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_and_entropies_are_those_of_the_softmax(vocabulary: int, temperature: float) -> None:
    logits_BV = some_logits(5, vocabulary)
    drawn = draw_wide(logits_BV, temperature, greedy=False, noise=None, generator=generator())
    logprobs_BV = torch.log_softmax(logits_BV.double() / temperature, -1)
    entropies_B = torch.distributions.Categorical(logits=logits_BV.double() / temperature).entropy()
    assert torch.allclose(drawn.logprobs_B.double(), logprobs_BV.gather(1, drawn.tokens_B[:, None])[:, 0], atol=1e-5)
    assert torch.allclose(drawn.entropies_B.double(), entropies_B, atol=1e-5)


@pytest.mark.parametrize("vocabulary", [6, 600])
def test_draws_have_the_probabilities_of_the_softmax(vocabulary: int) -> None:
    n = 40_000
    logits_V = some_logits(1, vocabulary)[0]
    drawn = draw_wide(logits_V.expand(n, -1), 1.0, greedy=False, noise=None, generator=generator())
    counts_V = torch.bincount(drawn.tokens_B, minlength=vocabulary).double()
    expected_V = n * logits_V.double().softmax(-1)
    assert not counts_V[expected_V == 0].any()
    likely = expected_V > 10
    squares = ((counts_V - expected_V).square() / expected_V)[likely].sum()
    freedom = int(likely.sum())
    assert float(squares) < freedom + 4 * (2 * freedom) ** 0.5


def test_the_whole_range_of_the_uniform_variable_is_used() -> None:
    # Of two equal tokens in different blocks, each is drawn half of the time; those around them have no weight.
    logits_BV = torch.full((1000, 700), -torch.inf)
    logits_BV[:, [300, 690]] = 5.0
    tokens_B = draw_wide(logits_BV, 1.0, greedy=False, noise=None, generator=generator()).tokens_B
    assert set(tokens_B.tolist()) == {300, 690}
    assert 440 < int((tokens_B == 300).sum()) < 560


def test_both_ways_agree_on_greedy_tokens_and_on_given_noise() -> None:
    logits_BV = some_logits(6, 500)
    gumbels_BV = torch.randn(6, 500, generator=generator(2))
    for greedy, noise in ((True, None), (False, lambda like: gumbels_BV.clone())):
        one, other = (
            way(logits_BV, 0.8, greedy=greedy, noise=noise, generator=generator()) for way in (draw_narrow, draw_wide)
        )
        assert torch.equal(one.tokens_B, other.tokens_B)
        assert torch.allclose(one.logprobs_B, other.logprobs_B, atol=1e-5)
        assert torch.allclose(one.entropies_B, other.entropies_B, atol=1e-5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("vocabulary", [10, WIDE])
def test_logits_that_are_no_numbers_give_no_number(bad: float, vocabulary: int) -> None:
    logits_BV = some_logits(2, vocabulary)
    logits_BV[1, 2] = bad
    drawn = draw(logits_BV, 1.0, greedy=False, noise=None, generator=generator())
    assert drawn.logprobs_B[1].isnan()
    assert 0 <= int(drawn.tokens_B[1]) < vocabulary


def test_the_logits_are_left_as_they_were() -> None:
    logits_BV = some_logits(2, 300)
    before = logits_BV.clone()
    draw_wide(logits_BV, 1.0, greedy=False, noise=None, generator=generator())
    assert torch.equal(logits_BV, before)
