import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.diagnostics.cross_scores.information import pointwise_information


def test_two_tokens_by_hand() -> None:
    # Token 1: .8 under the own prompt, .2 under the other, shares 1/2: mixture .5. Posterior of the own: .8.
    # Token 2: .5 and .25, so the mixture is .8 x .5 + .2 x .25 = .45.
    logprobs = np.log([[0.8, 0.5], [0.2, 0.25]])
    told = pointwise_information(logprobs, 0, [0.5, 0.5])
    assert told.tolist() == pytest.approx([math.log(0.8 / 0.5), math.log(0.5 / 0.45)], abs=1e-12)
    misled = pointwise_information(logprobs, 1, [0.5, 0.5])
    assert misled.tolist() == pytest.approx([math.log(0.2 / 0.5), math.log(0.25 / 0.45)], abs=1e-12)


def test_shares_are_the_prior() -> None:
    told = pointwise_information(np.log([[0.8], [0.2]]), 0, [0.25, 0.75])
    assert told.tolist() == pytest.approx([math.log(0.8 / (0.25 * 0.8 + 0.75 * 0.2))], abs=1e-12)


def test_a_token_that_every_prompt_predicts_alike_tells_nothing() -> None:
    logprobs = np.log([[0.9, 0.3, 0.6], [0.1, 0.3, 0.6]])
    assert pointwise_information(logprobs, 0, [0.5, 0.5])[1:].tolist() == pytest.approx([0.0, 0.0], abs=1e-12)


def test_what_was_already_told_is_not_told_again() -> None:
    # Token 1 settles the prompt; token 2 is as telling in itself and adds nothing.
    logprobs = np.array([[-0.1, -0.1], [-800.0, -5.0]])
    told = pointwise_information(logprobs, 0, [0.5, 0.5])
    assert told.tolist() == pytest.approx([math.log(2), 0.0], abs=1e-12)


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 60), st.floats(0.1, 30))
def test_the_tokens_add_to_matched_minus_marginal(seed: int, prompts: int, tokens: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    logprobs = -size * rng.exponential(size=(prompts, tokens))
    shares = rng.dirichlet(np.ones(prompts)) * 0.9 + 0.1 / prompts
    shares /= shares.sum()
    own = int(rng.integers(prompts))
    matched = math.fsum(logprobs[own])
    marginal = float(np.logaddexp.reduce(np.array([math.fsum(row) for row in logprobs]) + np.log(shares)))
    told = pointwise_information(logprobs, own, shares)
    assert told.shape == (tokens,)
    assert math.fsum(told) == pytest.approx(matched - marginal, rel=1e-12, abs=1e-12)
    assert math.fsum(told) <= -math.log(shares[own]) + 1e-9
