"""Cross-scoring by every method against scoring one pair at a time."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from heedful.diagnostics.cross_scores.score_matrix import select_rows  # noqa: E402
from heedful.protocols import Scorer  # noqa: E402
from heedful.scorers import output_head, pairs  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402
from scored_pairs import (  # noqa: E402
    METHODS,
    MODELS,
    VOCABULARY,
    case,
    llama,
    naive,
    naive_logprobs,
    qwen2,
    score,
    shared,
    some_ids,
    trusted,
    truth,
    watch_reads,
)


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("name", MODELS)
def test_scores_in_float64_equal_those_of_one_pair_at_a_time(method: str, name: str) -> None:
    model = shared(name)
    prompts, thoughts, own = case()
    scored = score(model, prompts, thoughts, own, method=method)
    # Eager attention takes its softmax in float32 whatever the dtype of the model.
    tolerance = 1e-4 if name == "llama_eager" else 1e-10
    assert scored.method == method
    np.testing.assert_allclose(scored.scores_MN, truth(name), rtol=0, atol=tolerance)
    assert scored.scores_MN.dtype == np.float64
    assert scored.scores_MN.shape == (10, 5)
    assert list(scored.lengths_M) == [6, 1, 18, 3, 0, 11, 6, 18, 9, 1]
    assert list(scored.own_M) == own
    assert np.ptp(scored.scores_MN, axis=1).max() > 1, "the prompt must matter, or the test shows nothing"


def test_means_in_float32_are_within_1e_4_and_sums_within_the_stated_noise(method: str) -> None:
    scored = score(llama(torch.float32), *case(), method=method)
    # The weights are drawn in float32, so both models hold the same numbers.
    error = np.abs(scored.scores_MN - truth())
    assert (error / np.maximum(scored.lengths_M, 1)[:, None]).max() < 1e-4
    assert 0 < error.max() < scored.noise < 1e-3


def test_the_stated_noise_of_half_precision_is_larger_and_covers_its_error_at_ordinary_weights(method: str) -> None:
    prompts, thoughts, own = case()
    half = llama(torch.bfloat16, initializer_range=0.05)
    exact = naive(copy.deepcopy(half).double(), prompts, thoughts)
    scored = score(half, prompts, thoughts, own, method=method)
    assert 1e-3 < np.abs(scored.scores_MN - exact).max() < scored.noise
    # eps of bfloat16 is 2^-7; the longest thought has 18 tokens of about log(61) nats: 74 / sqrt(18) / 128 = .14.
    assert scored.noise == pytest.approx(0.14, abs=0.03)


@pytest.mark.parametrize("temperature", [0.5, 1.7])
def test_temperature_divides_the_logits(method: str, temperature: float) -> None:
    scored = score(shared(), *case(), temperature, method=method)
    np.testing.assert_allclose(scored.scores_MN, truth(temperature=temperature), rtol=0, atol=1e-10)
    assert np.abs(scored.scores_MN - truth()).max() > 1


def test_heads_are_sums_over_the_first_tokens(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "HEADS", (1, 4, 100))
    scored = score(shared(), *case(), method=method)
    assert set(scored.heads) == {1, 4, 100}
    for k, sums_MN in scored.heads.items():
        np.testing.assert_allclose(sums_MN, truth(first=k), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(scored.heads[100], scored.scores_MN)


def test_an_empty_thought_scores_zero_under_every_prompt(method: str) -> None:
    model, (prompts, thoughts, own) = shared(), case()
    scored = score(model, prompts, thoughts, own, method=method)
    assert not scored.scores_MN[thoughts.index([])].any()
    assert score(model, prompts, [[], []], method=method).scores_MN.tolist() == [[0.0] * 5] * 2
    assert score(model, prompts, [], method=method).scores_MN.shape == (0, 5)


def test_thoughts_of_one_token_are_read_off_the_prompt(method: str) -> None:
    model, (prompts, _, _) = shared(), case()
    thoughts = [[3], [4]]
    np.testing.assert_allclose(
        score(model, prompts, thoughts, method=method).scores_MN, naive(model, prompts, thoughts), rtol=0, atol=1e-10
    )


def test_permuting_prompts_and_thoughts_permutes_the_matrix(method: str) -> None:
    model, (prompts, thoughts, own) = shared(), case()
    rows, columns = list(range(len(thoughts))), list(range(len(prompts)))
    rng = random.Random(5)
    rng.shuffle(rows)
    rng.shuffle(columns)
    before = score(model, prompts, thoughts, own, method=method).scores_MN
    after = score(model, [prompts[j] for j in columns], [thoughts[i] for i in rows], method=method).scores_MN
    np.testing.assert_allclose(after, before[np.ix_(rows, columns)], rtol=0, atol=1e-10)


@pytest.mark.parametrize("max_tokens", [1, 20, 100_000])
def test_scores_do_not_depend_on_max_tokens_and_no_pass_exceeds_it(
    method: str, max_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (prompts, thoughts, own) = shared(), case()
    scorer = trusted(model, method, max_tokens=max_tokens)
    read = watch_reads(model, monkeypatch)
    scored = scorer.cross_score(prompts, thoughts, own, 1.0)
    np.testing.assert_allclose(scored.scores_MN, truth(), rtol=0, atol=1e-10)
    longest = max(map(len, prompts + thoughts))
    assert all(rows * width <= max_tokens or (rows == 1 and width <= longest) for rows, width in read)


def test_a_repeated_thought_is_read_once_and_scored_alike(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, _) = shared(), case()
    distinct = [list(ids) for ids in dict.fromkeys(map(tuple, thoughts))]
    read = watch_reads(model, monkeypatch)
    once = score(model, prompts, distinct, method=method).scores_MN
    shapes = read.copy()
    read.clear()
    thrice = score(model, prompts, distinct * 3, method=method).scores_MN
    assert read == shapes
    np.testing.assert_array_equal(thrice, np.tile(once, (3, 1)))


def test_prompts_and_last_tokens_are_not_read_again_for_every_thought(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rng = llama(), random.Random(3)
    scorer = trusted(model, method)
    read = watch_reads(model, monkeypatch)
    thoughts = [[first, *some_ids(rng, 4)] for first in range(6)]
    scorer.cross_score([some_ids(rng, 9) for _ in range(4)], thoughts, [0] * 6, 1.0)
    # 4 prompts of 9 tokens, then 4 x 6 thoughts of which 4 tokens each have to be read; nothing else, no padding.
    assert sum(rows * width for rows, width in read) == 4 * 9 + 4 * 6 * 4


def test_the_model_and_the_random_state_are_left_as_they_were(method: str) -> None:
    model = llama(attention_dropout=0.5)
    model.train()
    model.model.layers[0].eval()
    states = [module.training for module in model.modules()]
    weights = copy.deepcopy(model.state_dict())
    prompts, thoughts, own = case()
    torch.manual_seed(9)
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy())
    first = score(model, prompts, thoughts, own, method=method).scores_MN
    np.testing.assert_array_equal(score(model, prompts, thoughts, own, method=method).scores_MN, first)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])
    assert [module.training for module in model.modules()] == states
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    model(input_ids=torch.tensor([prompts[0]])).logits.sum().backward()


def test_the_state_of_the_modules_is_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama().train()
    before = model.config._attn_implementation
    scorer = HFScorer(model)
    assert scorer.method == "packed"
    monkeypatch.setattr(model.model.layers[1].mlp, "forward", lambda states: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scorer.cross_score([[1]], [[2, 3]], [0], 1.0)
    assert model.training
    assert model.config._attn_implementation == before


def test_a_window_in_force_is_kept_and_one_that_no_layer_uses_changes_nothing() -> None:
    case = ([[number % VOCABULARY for number in range(40)]], [[1, 2, 3, 4]])
    for model in (
        qwen2(use_sliding_window=False, sliding_window=4),
        qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=1),
        llama(sliding_window=4),
    ):
        plain = score(model, *case, method="plain")
        np.testing.assert_allclose(score(model, *case).scores_MN, plain.scores_MN, rtol=0, atol=1e-6)
        assert not HFScorer(model).method.startswith("plain")


@pytest.mark.parametrize(
    ("kind", "settings", "found"),
    [
        (
            "BertLMHeadModel",
            {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32},
            "bidirectional attention",
        ),
        (
            "T5ForConditionalGeneration",
            {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4},
            "an encoder-decoder",
        ),
    ],
)
def test_a_model_that_is_not_causal_is_refused(kind: str, settings: Any, found: str) -> None:
    build = getattr(transformers, kind)
    with pytest.raises(ValueError, match=f"{found} in {kind}"):
        HFScorer(build(build.config_class(**{"vocab_size": VOCABULARY, **settings})))


def test_a_pair_beyond_the_window_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="128 positions, found 129 tokens"):
        score(llama(), [[1] * 120], [[2] * 10])


def test_a_model_with_weights_that_are_not_finite_is_refused_with_a_sentence(method: str) -> None:
    model = llama()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="found NaN"):
        score(model, [[1]], [[2, 3]], method=method)


def test_the_scorer_keeps_the_contract_of_its_protocol() -> None:
    scorer: Scorer = HFScorer(llama(), name="judge")
    assert scorer.name == "judge"
    assert HFScorer(llama()).name == ""


def test_tokens_are_the_log_probabilities_of_single_tokens_and_are_kept_only_if_asked_for(method: str) -> None:
    model, (prompts, thoughts, own) = shared(), case()
    assert score(model, prompts, thoughts, own, method=method).tokens is None
    scored = HFScorer(model, method=method).cross_score(prompts, thoughts, own, 1.3, keep="tokens")
    assert scored.tokens is not None
    for ids, logprobs_NT in zip(thoughts, scored.tokens, strict=True):
        assert logprobs_NT.dtype == np.float32
        assert logprobs_NT.shape == (len(prompts), len(ids))
        expected_NT = [naive_logprobs(model, prompt, ids, 1.3) for prompt in prompts]
        np.testing.assert_allclose(logprobs_NT, expected_NT, rtol=1e-6, atol=1e-6)


def test_tokens_follow_their_rows_and_columns_when_thoughts_are_selected() -> None:
    model, (prompts, thoughts, own) = shared(), case()
    scored = HFScorer(model).cross_score(prompts, thoughts, own, 1.0, keep="tokens")
    chosen = [row in (2, 4, 7) for row in range(len(thoughts))]
    selected = select_rows(scored, chosen)
    assert [own[row] for row in (2, 4, 7)] == [2, 4, 2]
    assert selected.method == scored.method
    for row, tokens_NT in zip((2, 4, 7), selected.tokens, strict=True):
        np.testing.assert_array_equal(tokens_NT, scored.tokens[row][[2, 4]])


def test_equal_prompts_as_one_column_with_their_share_give_the_mixture_of_all_columns(method: str) -> None:
    model, (prompts, thoughts, _) = shared(), case()
    repeated = [0, 1, 2, 3, 4, 0, 0, 2]
    whole_MN = naive(model, [prompts[column] for column in repeated], thoughts)
    unique_MN = score(model, prompts, thoughts, method=method).scores_MN
    log_shares_N = np.log(np.bincount(repeated) / len(repeated))
    mixture_M = np.logaddexp.reduce(unique_MN + log_shares_N, axis=1)
    np.testing.assert_allclose(mixture_M, np.logaddexp.reduce(whole_MN - np.log(len(repeated)), axis=1), atol=1e-10)


def test_many_vocabulary_blocks_and_few_rows_give_the_same_log_probabilities(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_head, "_CPU_BLOCK", (3, 7))
    monkeypatch.setattr(output_head, "_FUSED_COLUMNS", (7, 7))
    model, (prompts, thoughts, own) = shared(), case()
    scored = score(model, prompts, thoughts, own, 0.8, method=method)
    np.testing.assert_allclose(scored.scores_MN, truth(temperature=0.8), rtol=0, atol=1e-10)


def test_a_block_without_a_finite_logit_does_not_count() -> None:
    logits_RV = torch.full((2, 1500), -torch.inf)
    logits_RV[1, 3] = 2.0
    assert output_head._log_sum_exp(logits_RV).tolist() == [-torch.inf, 2.0]
