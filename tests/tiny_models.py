"""Models of a few thousand random weights. Their weights are wide, so that every token has a say and errors show."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM


def llama(vocabulary: int, kv_heads: int = 2, window: int = 1024, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A Llama in float64, 32 wide, two layers, four heads."""
    config = LlamaConfig(**_sizes(vocabulary, kv_heads, window), tie_word_embeddings=True, **changes)
    return _made(LlamaForCausalLM, config, seed)


def narrow(vocabulary: int, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> LlamaForCausalLM:
    """A Llama in evaluation mode, 16 wide, two layers, two heads."""
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: LlamaForCausalLM = LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, **(sizes | changes)))
        return model.to(dtype).eval()


def qwen2(vocabulary: int, window: int = 1024, seed: int = 0) -> PreTrainedModel:
    """A Qwen2 in float64: biases in the attention, an output layer of its own, another base of the positions."""
    config = Qwen2Config(**_sizes(vocabulary, 1, window), tie_word_embeddings=False, rope_theta=1e5)
    model = _made(Qwen2ForCausalLM, config, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.3)
    return model


def _sizes(vocabulary: int, kv_heads: int, window: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": window,
        "initializer_range": 0.3,
    }


def _made(kind: Any, config: Any, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = kind(config).double().eval()
    return model
