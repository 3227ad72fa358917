"""One small random model of each causal language model that transformers has, as far as its config can be shrunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCABULARY = 61
MOST_PARAMETERS = 2_000_000
NOT_BUILT = (
    *(AttributeError, AssertionError, ImportError, LookupError, RuntimeError, TypeError, ValueError, ZeroDivisionError),
    StrictDataclassError,
)
"""What a config or a model raises if it does not take these sizes."""

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "is_decoder": True,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "moe_num_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "shared_expert_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
_ALSO: dict[str, dict[str, Any]] = {
    "gpt_oss": {"layer_types": ["full_attention"] * 2, "head_dim": 8},
    "minicpm3": {"dim_model_base": 16, "scale_depth": 1.4},
}
_TRIES: list[dict[str, Any]] = [
    {"head_dim": 8},
    {},
    {"head_dim": 8, **_EXPERTS},
    {**_EXPERTS},
    {**_LATENT, **_EXPERTS},
    {"num_key_value_heads": 4},
]


def names() -> list[str]:
    """The model types of transformers that have a causal language model."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def built(kind: str, vocabulary: int = VOCABULARY) -> Any:
    """A small random model of this type in float32. Raises the last error of `NOT_BUILT` if no set of sizes fits."""
    found = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
    model_class = getattr(transformers, found if isinstance(found, str) else found[0])
    config_class = getattr(transformers, CONFIG_MAPPING_NAMES[kind])
    errors: list[Exception] = []
    for sizes in _tries(kind):
        try:
            return _made(model_class, config_class(**{**_SIZES, "vocab_size": vocabulary, **sizes}))
        except NOT_BUILT as error:
            errors.append(error)
    raise errors[-1]


def _tries(kind: str) -> Iterator[dict[str, Any]]:
    latent = any(part in kind for part in ("deepseek_v", "minicpm3", "glm4_moe_lite", "longcat", "kimi"))
    for sizes in _TRIES[4:] if latent else _TRIES:
        yield {**sizes, **_ALSO.get(kind, {})}


def _made(model_class: Any, config: Any) -> Any:
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in model_class(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(f"{parameters} parameters")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = model_class(config).float().eval()
        with torch.no_grad():
            model(input_ids=torch.tensor([[1, 2, 3, 4]]))
    return model
