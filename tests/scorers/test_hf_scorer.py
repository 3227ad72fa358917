"""Cross-scoring over a shared prompt cache against scoring one pair at a time."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from heedful.protocols import Scorer  # noqa: E402
from heedful.scorers import hf  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402

VOCABULARY = 61
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def llama(dtype: Any = None, **changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**SIZES, "num_key_value_heads": 2, **changes})
    return transformers.LlamaForCausalLM(config).to(dtype or torch.float64)


def qwen2(**changes: Any) -> Any:
    torch.manual_seed(1)
    config = transformers.Qwen2Config(**{**SIZES, "num_key_value_heads": 2, "tie_word_embeddings": True, **changes})
    return transformers.Qwen2ForCausalLM(config).double()


def gpt2() -> Any:
    torch.manual_seed(2)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128, initializer_range=0.3
    )
    return transformers.GPT2LMHeadModel(config).double()


def granite() -> Any:
    """Divides its logits after the output layer."""
    torch.manual_seed(3)
    config = transformers.GraniteConfig(**{**SIZES, "num_key_value_heads": 2, "logits_scaling": 3.0})
    return transformers.GraniteForCausalLM(config).double()


MODELS: dict[str, Callable[[], Any]] = {
    "llama_grouped_heads": llama,
    "llama_full_heads": lambda: llama(num_key_value_heads=4),
    "llama_eager": lambda: llama(attn_implementation="eager"),
    "qwen2": qwen2,
    "gpt2_learned_positions": gpt2,
    "granite_scaled_logits": granite,
}


def some_ids(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(length)]


def case(seed: int = 0) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Prompts of equal and unequal lengths; thoughts ragged, empty, of one token, repeated, and prefixes of others."""
    rng = random.Random(seed)
    prompts = [some_ids(rng, length) for length in (7, 7, 12, 7, 1)]
    thoughts = [some_ids(rng, length) for length in (6, 1, 18, 3, 0, 11, 6)]
    thoughts += [list(thoughts[2]), thoughts[2][:9], thoughts[2][:1]]
    return prompts, thoughts, [row % len(prompts) for row in range(len(thoughts))]


def naive_logprobs(model: Any, prompt: Sequence[int], thought: Sequence[int], temperature: float) -> np.ndarray:
    """One pair alone, no cache, no padding: per-token log-probabilities."""
    if not thought:
        return np.zeros(0)
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor([[*prompt, *thought]])).logits[0, len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature, dim=-1)
    return logprobs.gather(1, torch.tensor(thought)[:, None])[:, 0].double().numpy()


def naive(model: Any, prompts: Any, thoughts: Any, temperature: float = 1.0, first: int | None = None) -> np.ndarray:
    return np.array([[naive_logprobs(model, x, z, temperature)[:first].sum() for x in prompts] for z in thoughts])


def score(model: Any, prompts: Any, thoughts: Any, own: Any = None, temperature: float = 1.0, **knobs: Any) -> Any:
    own = [0] * len(thoughts) if own is None else own
    return HFScorer(model, **knobs).cross_score(prompts, thoughts, own, temperature)


@pytest.mark.parametrize("name", MODELS)
def test_scores_in_float64_equal_those_of_one_pair_at_a_time(name: str) -> None:
    model = MODELS[name]()
    prompts, thoughts, own = case()
    scored = score(model, prompts, thoughts, own)
    # Eager attention takes its softmax in float32 whatever the dtype of the model.
    tolerance = 1e-4 if name == "llama_eager" else 1e-10
    np.testing.assert_allclose(scored.scores_MN, naive(model, prompts, thoughts), rtol=0, atol=tolerance)
    assert scored.scores_MN.dtype == np.float64
    assert scored.scores_MN.shape == (10, 5)
    assert list(scored.lengths_M) == [6, 1, 18, 3, 0, 11, 6, 18, 9, 1]
    assert list(scored.own_M) == own
    assert np.ptp(scored.scores_MN, axis=1).max() > 1, "the prompt must matter, or the test shows nothing"


def test_means_in_float32_are_within_1e_4_and_sums_within_the_stated_noise() -> None:
    prompts, thoughts, own = case()
    truth = naive(llama(), prompts, thoughts)
    scored = score(llama(torch.float32), prompts, thoughts, own)
    # The weights are drawn in float32, so both models hold the same numbers.
    error = np.abs(scored.scores_MN - truth)
    assert (error / np.maximum(scored.lengths_M, 1)[:, None]).max() < 1e-4
    assert 0 < error.max() < scored.noise < 1e-3


def test_the_stated_noise_of_half_precision_is_larger_and_covers_its_error_at_ordinary_weights() -> None:
    prompts, thoughts, own = case()
    half = llama(torch.bfloat16, initializer_range=0.05)
    truth = naive(copy.deepcopy(half).double(), prompts, thoughts)
    scored = score(half, prompts, thoughts, own)
    assert 1e-3 < np.abs(scored.scores_MN - truth).max() < scored.noise
    # eps of bfloat16 is 2^-7; the longest thought has 18 tokens of about log(61) nats: 74 / sqrt(18) / 128 = .14.
    assert scored.noise == pytest.approx(0.14, abs=0.03)


@pytest.mark.parametrize("temperature", [0.5, 1.7])
def test_temperature_divides_the_logits(temperature: float) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    scored = score(model, prompts, thoughts, own, temperature)
    np.testing.assert_allclose(scored.scores_MN, naive(model, prompts, thoughts, temperature), rtol=0, atol=1e-10)
    assert np.abs(scored.scores_MN - naive(model, prompts, thoughts)).max() > 1


def test_heads_are_sums_over_the_first_tokens() -> None:
    model, (prompts, thoughts, own) = llama(), case()
    scored = score(model, prompts, thoughts, own, head_tokens=(1, 4, 100))
    assert set(scored.heads) == {1, 4, 100}
    for k, sums_MN in scored.heads.items():
        np.testing.assert_allclose(sums_MN, naive(model, prompts, thoughts, first=k), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(scored.heads[100], scored.scores_MN)


def test_an_empty_thought_scores_zero_under_every_prompt() -> None:
    model, (prompts, thoughts, own) = llama(), case()
    scored = score(model, prompts, thoughts, own)
    assert not scored.scores_MN[thoughts.index([])].any()
    assert score(model, prompts, [[], []]).scores_MN.tolist() == [[0.0] * 5] * 2
    assert score(model, prompts, []).scores_MN.shape == (0, 5)


def test_thoughts_of_one_token_are_read_off_the_prompt() -> None:
    model, (prompts, _, _) = llama(), case()
    thoughts = [[3], [4]]
    np.testing.assert_allclose(
        score(model, prompts, thoughts).scores_MN, naive(model, prompts, thoughts), rtol=0, atol=1e-10
    )


def test_permuting_prompts_and_thoughts_permutes_the_matrix() -> None:
    model, (prompts, thoughts, own) = llama(), case()
    rows, columns = list(range(len(thoughts))), list(range(len(prompts)))
    rng = random.Random(5)
    rng.shuffle(rows)
    rng.shuffle(columns)
    before = score(model, prompts, thoughts, own).scores_MN
    after = score(model, [prompts[j] for j in columns], [thoughts[i] for i in rows]).scores_MN
    np.testing.assert_allclose(after, before[np.ix_(rows, columns)], rtol=0, atol=1e-10)


@pytest.mark.parametrize("max_tokens", [1, 7, 20, 64, 100_000])
def test_scores_do_not_depend_on_max_tokens_and_no_pass_exceeds_it(
    max_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    read = watch_reads(model, monkeypatch)
    scored = score(model, prompts, thoughts, own, max_tokens=max_tokens)
    np.testing.assert_allclose(scored.scores_MN, expected, rtol=0, atol=1e-10)
    assert all(rows * width <= max_tokens or rows == 1 for rows, width in read)


def watch_reads(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Shapes (rows, tokens) of everything read into or behind a cache from now on."""
    read: list[tuple[int, int]] = []
    forward = model.model.forward

    def watched(*args: Any, **named: Any) -> Any:
        if named.get("past_key_values") is not None:
            read.append(tuple(named["input_ids"].shape))
        return forward(*args, **named)

    monkeypatch.setattr(model.model, "forward", watched)
    return read


def test_a_repeated_thought_is_read_once_and_scored_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, _) = llama(), case()
    distinct = [list(ids) for ids in dict.fromkeys(map(tuple, thoughts))]
    read = watch_reads(model, monkeypatch)
    once = score(model, prompts, distinct).scores_MN
    shapes = read.copy()
    read.clear()
    thrice = score(model, prompts, distinct * 3).scores_MN
    assert read == shapes
    np.testing.assert_array_equal(thrice, np.tile(once, (3, 1)))


def test_prompts_and_last_tokens_are_not_read_again_for_every_thought(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = llama(), random.Random(3)
    read = watch_reads(model, monkeypatch)
    score(model, [some_ids(rng, 9) for _ in range(4)], [some_ids(rng, 5) for _ in range(6)])
    # 4 prompts of 9 tokens, then 4 x 6 thoughts of which 4 tokens each have to be read; nothing else, no padding.
    assert sum(rows * width for rows, width in read) == 4 * 9 + 4 * 6 * 4


def test_the_output_layer_is_applied_alone_unless_the_model_does_more_to_its_logits() -> None:
    model = llama()
    assert hf._body_and_head(model, model.device) == (model.model, model.lm_head)
    scaled = granite()
    assert hf._body_and_head(scaled, scaled.device) == (scaled, None)


def test_positions_off_by_one_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    forward = model.model.forward

    def shifted(*args: Any, **named: Any) -> Any:
        cache = named.get("past_key_values")
        if cache is not None and cache.get_seq_length():
            start = cache.get_seq_length() + 1
            named["position_ids"] = torch.arange(start, start + named["input_ids"].shape[1])[None]
        return forward(*args, **named)

    monkeypatch.setattr(model.model, "forward", shifted)
    assert np.abs(score(model, prompts, thoughts, own).scores_MN - expected).max() > 1e-2


def test_a_first_token_scored_by_another_prompt_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    read_prompts = hf._Reader.read_prompts

    def rolled(self: Any, group: Any) -> Any:
        cache, first_NM = read_prompts(self, group)
        return cache, first_NM.roll(1, dims=0)

    monkeypatch.setattr(hf._Reader, "read_prompts", rolled)
    assert np.abs(score(model, prompts, thoughts, own).scores_MN - expected).max() > 1e-2


def test_a_thought_that_sees_the_one_before_it_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (prompts, thoughts, own) = llama(), case()
    expected = naive(model, prompts, thoughts)
    update = hf._Prefix.update

    def written(self: Any, *states: Any, **named: Any) -> Any:
        self.keys, self.values = update(self, *states, **named)
        return self.keys, self.values

    monkeypatch.setattr(hf._Prefix, "update", written)
    assert np.abs(score(model, prompts, thoughts, own, max_tokens=1).scores_MN - expected).max() > 1e-2


def test_a_prompt_cache_in_the_wrong_row_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = llama(), random.Random(4)
    prompts, thoughts = [some_ids(rng, 6) for _ in range(3)], [some_ids(rng, 4) for _ in range(2)]
    expected = naive(model, prompts, thoughts)
    np.testing.assert_allclose(score(model, prompts, thoughts).scores_MN, expected, rtol=0, atol=1e-10)
    continued = hf._continued
    monkeypatch.setattr(hf, "_continued", lambda prefix, states: continued(prefix.roll(1, dims=0), states))
    assert np.abs(score(model, prompts, thoughts).scores_MN - expected).max() > 1e-2


def test_the_model_and_the_random_state_are_left_as_they_were() -> None:
    model = llama(attention_dropout=0.5)
    model.train()
    model.model.layers[0].eval()
    states = [module.training for module in model.modules()]
    weights = copy.deepcopy(model.state_dict())
    prompts, thoughts, own = case()
    torch.manual_seed(9)
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy())
    first = score(model, prompts, thoughts, own).scores_MN
    np.testing.assert_array_equal(score(model, prompts, thoughts, own).scores_MN, first)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])
    assert [module.training for module in model.modules()] == states
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    model(input_ids=torch.tensor([prompts[0]])).logits.sum().backward()


def test_the_state_of_the_modules_is_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama().train()
    monkeypatch.setattr(hf._Reader, "read_prompts", lambda self, prompts: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        score(model, [[1]], [[2]])
    assert model.training


def test_a_qwen2_with_its_window_switched_off_is_accepted_and_one_in_force_is_refused() -> None:
    HFScorer(qwen2(use_sliding_window=False, sliding_window=4))
    with pytest.raises(ValueError, match="full attention in every layer, found layers of type sliding_attention"):
        HFScorer(qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=1))


def mistral() -> Any:
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=4))


def gpt_neo() -> Any:
    config = transformers.GPTNeoConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
    )
    return transformers.GPTNeoForCausalLM(config)


def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32
    )
    return transformers.BertLMHeadModel(config)


def t5() -> Any:
    config = transformers.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4)
    return transformers.T5ForConditionalGeneration(config)


def mamba() -> Any:
    config = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=1)
    return transformers.MambaForCausalLM(config)


@pytest.mark.parametrize(
    ("build", "found"),
    [
        (mistral, "a sliding window of 4 tokens in MistralForCausalLM"),
        (gpt_neo, "layers of type local"),
        (bert, "bidirectional attention"),
        (t5, "an encoder-decoder"),
        (mamba, "recurrent state"),
    ],
)
def test_a_model_whose_attention_is_not_plain_and_causal_is_refused(build: Callable[[], Any], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        HFScorer(build())


def test_what_cannot_be_scored_is_refused_with_a_sentence() -> None:
    model = llama()
    with pytest.raises(ValueError, match="distinct prompts, found the same 2 token ids as prompts 0 and 2"):
        score(model, [[1, 2], [3], [1, 2]], [[4]])
    with pytest.raises(ValueError, match="prompts of at least one token"):
        score(model, [[1], []], [[4]])
    with pytest.raises(ValueError, match="found 0 prompts"):
        score(model, [], [])
    with pytest.raises(ValueError, match="column from 0 to 0 for each of 1 thoughts"):
        score(model, [[1]], [[4]], [1])
    with pytest.raises(ValueError, match="temperature above 0, found 0"):
        score(model, [[1]], [[4]], temperature=0.0)
    with pytest.raises(ValueError, match="ids from 0 to 60, found 1 to 61"):
        score(model, [[1]], [[61]])
    with pytest.raises(ValueError, match="128 positions, found 129 tokens"):
        score(model, [[1] * 120], [[2] * 10])
    with pytest.raises(ValueError, match="at least 1"):
        HFScorer(model, head_tokens=(0,))


def test_a_model_with_weights_that_are_not_finite_is_refused_with_a_sentence() -> None:
    model = llama()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="found NaN"):
        score(model, [[1]], [[2, 3]])


def test_passes_are_cut_where_padding_would_cost_more_than_a_pass() -> None:
    lengths = [11, 3, 0, 3, 11]
    # Read are 2, 2, 10 and 10 tokens. A pass costs 8 of 64: 4 + 20 + 2 x 8 = 40 in two passes, 40 + 8 = 48 in one.
    assert hf._plan_rows(lengths, budget=64, longest_prompt=1) == [[0, 4], [1, 3]]
    # A pass costs 125 of 1000: 24 + 2 x 125 in two passes, 40 + 125 in one.
    assert hf._plan_rows(lengths, budget=1000, longest_prompt=1) == [[1, 3, 0, 4]]
    # No two rows of 10 tokens fit 19; no two copies of a prompt of 600 positions fit 16 x 64.
    assert hf._plan_rows(lengths, budget=19, longest_prompt=1) == [[4], [0], [1, 3]]
    assert hf._plan_rows(lengths, budget=64, longest_prompt=600) == [[4], [0], [3], [1]]


def test_the_scorer_keeps_the_contract_of_its_protocol() -> None:
    scorer: Scorer = HFScorer(llama(), name="judge")
    assert scorer.name == "judge"
    assert HFScorer(llama()).name == ""
