"""Small models, prompts, thoughts, and the naive scores to compare with: one pair at a time, no cache, no padding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from heedful.models.forward.exactness import plain_states  # noqa: E402
from heedful.scorers.hf import HFScorer  # noqa: E402

METHODS = ("packed", "trie", "cached", "by_token")
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
        logits = plain_states(model.eval(), torch.tensor([[*prompt, *thought]]))[0, len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature, dim=-1)
    return logprobs.gather(1, torch.tensor(thought)[:, None])[:, 0].double().numpy()


def naive(model: Any, prompts: Any, thoughts: Any, temperature: float = 1.0, first: int | None = None) -> np.ndarray:
    return np.array([[naive_logprobs(model, x, z, temperature)[:first].sum() for x in prompts] for z in thoughts])


@cache
def shared(name: str = "llama_grouped_heads") -> Any:
    """A model of `MODELS` for all tests that leave it as it is: its probe reads it once."""
    return MODELS[name]()


@cache
def truth(name: str = "llama_grouped_heads", temperature: float = 1.0, first: int | None = None) -> np.ndarray:
    """The naive scores of `case()` under a model of `MODELS` as it is built, computed once."""
    prompts, thoughts, _ = case()
    found_MN = naive(shared(name), prompts, thoughts, temperature, first)
    found_MN.flags.writeable = False
    return found_MN


def score(model: Any, prompts: Any, thoughts: Any, own: Any = None, temperature: float = 1.0, **knobs: Any) -> Any:
    own = [0] * len(thoughts) if own is None else own
    return HFScorer(model, **knobs).cross_score(prompts, thoughts, own, temperature)


def trusted(model: Any, method: str, **knobs: Any) -> HFScorer:
    """A scorer that has passed its probe, so that what is broken afterwards reaches the scores."""
    scorer = HFScorer(model, method=method, **knobs)
    assert scorer.method == method
    return scorer


def assert_noticed(scorer: HFScorer, expected_MN: np.ndarray, prompts: Any, thoughts: Any, own: Any) -> None:
    """What was broken since shows in the scores."""
    assert np.abs(scorer.cross_score(prompts, thoughts, own, 1.0).scores_MN - expected_MN).max() > 1e-2


def watch_reads(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Shapes (rows, tokens) of everything read into or behind a cache, or in a pack, from now on."""
    read: list[tuple[int, int]] = []
    forward = model.model.forward

    def watched(*args: Any, **named: Any) -> Any:
        if named.get("past_key_values") is not None or named.get("packed") is not None:
            read.append(tuple(named["input_ids"].shape))
        return forward(*args, **named)

    monkeypatch.setattr(model.model, "forward", watched)
    return read
