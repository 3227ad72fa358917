"""One tiny random model of each family of causal language models that people train today, as rows of settings.

    from benchmarks.families.models import FAMILIES, built
    model = built("qwen3_next")          # float32, evaluation mode, 160 ids, about 0.1 million weights
    model = built("mistral", window=80)  # a window of 80 tokens instead of 8

The weights are wide, so that logits are not flat and an error shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

VOCABULARY = 160
WINDOW = 8
"""Tokens of a sliding window, or of a chunk."""
LONGER = 80
"""A window that a short probe does not reach."""

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "moe_topk": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "mamba_chunk_size": 16,
    "mamba_d_state": 16,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
"""Settings of every family. A config takes those that it has."""
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "head_dim": None,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
"""Latent attention. `None`: the setting is left out."""
SPARSE: dict[str, Any] = {**LATENT, "index_topk": 8, "index_n_heads": 16, "index_head_dim": 16}
"""With few index heads many scores are 0. Which of equal ones are chosen depends on the width of the pass."""

FULL, SLIDING, LINEAR, CHUNKED = "full_attention", "sliding_attention", "linear_attention", "chunked_attention"
DELTA = {"layer_types": [LINEAR, LINEAR, FULL, LINEAR]}
CONVOLUTIONS = {"layer_types": ["conv", "conv", FULL, "conv"]}
HALF = {"layer_types": [SLIDING, FULL, SLIDING, FULL]}
MOST = {"layer_types": [SLIDING, SLIDING, SLIDING, FULL]}
GEMMA = {
    **HALF,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": VOCABULARY,
}


@dataclass(frozen=True, slots=True)
class Family:
    """The layers in words, and the settings in which this family differs from `SIZES`."""

    layers: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    window: str = ""
    """The setting with the length of its window or chunk. Empty if it has none."""
    longer: bool = False
    """Whether it is also checked with a window of `LONGER` tokens."""
    text: str = ""
    """For a vision-language class: the family of its language model."""


def _sliding(layers: str, settings: Mapping[str, Any] | None = None, longer: bool = False) -> Family:
    return Family(layers, settings or {}, "sliding_window", longer)


FAMILIES: dict[str, Family] = {
    # Full attention in every layer.
    "llama": Family("full"),
    "qwen2": Family("full"),
    "qwen3": Family("full"),
    "qwen3_moe": Family("full, MoE"),
    "ministral3": Family("full"),
    "seed_oss": Family("full"),
    "hunyuan_v1_dense": Family("full"),
    "hunyuan_v1_moe": Family("full, MoE"),
    "hy_v3": Family("full, MoE"),
    "dots1": Family("full, MoE"),
    "ernie4_5": Family("full"),
    "ernie4_5_moe": Family("full, MoE"),
    "glm4_moe": Family("full, MoE"),
    "glm4_moe_lite": Family("latent, MoE", LATENT),
    "minimax_m2": Family("full, MoE"),
    "minimax_m3_vl_text": Family(
        "full, MoE", {"dense_intermediate_size": 96, "shared_intermediate_size": 32, "rotary_dim": 8}
    ),
    "apertus": Family("full"),
    "smollm3": Family("full"),
    "solar_open": Family("full, MoE"),
    "flex_olmo": Family("full, MoE"),
    "nanochat": Family("full"),
    "deepseek_v3": Family("latent, MoE", LATENT),
    "longcat_flash": Family(
        "latent, MoE",
        {
            **LATENT,
            "head_dim": 8,
            "num_layers": 2,
            "ffn_hidden_size": 96,
            "expert_ffn_hidden_size": 32,
            "zero_expert_num": 2,
        },
    ),
    # Windows and chunks.
    "mistral": _sliding("sliding", longer=True),
    "ministral": _sliding("sliding"),
    "phi3": _sliding("sliding", longer=True),
    "phimoe": _sliding("sliding, MoE"),
    "gemma2": _sliding("sliding 1:1 full", HALF),
    "gemma3_text": _sliding("sliding 1:1 full", HALF, longer=True),
    "gemma3n_text": _sliding(
        "sliding 1:1 full, shared keys",
        {**GEMMA, "laurel_rank": 8, "intermediate_size": [96] * 4, "activation_sparsity_pattern": [0.0] * 4},
    ),
    "gemma4_text": _sliding("sliding 1:1 full, shared keys", {**GEMMA, "global_head_dim": 32}),
    "gpt_oss": _sliding("sliding 1:1 full, sinks, MoE", HALF, longer=True),
    "olmo3": _sliding("sliding 3:1 full", MOST),
    "exaone4": _sliding("sliding 3:1 full", MOST),
    "exaone_moe": _sliding("sliding 3:1 full, MoE", MOST),
    "cohere2": _sliding("sliding 3:1 full", {**MOST, "logit_scale": 0.5}),
    "cohere2_moe": _sliding("sliding 3:1 full, MoE", {**MOST, "logit_scale": 0.5}),
    "laguna": _sliding("sliding 3:1 full, MoE", MOST),
    "mimo_v2_flash": _sliding("sliding 3:1 full, sinks, MoE", MOST),
    "afmoe": _sliding("sliding 3:1 full, MoE", MOST),
    "granite_swa": _sliding("sliding 1:1 full, sinks", HALF),
    "llama4_text": Family(
        "chunks 3:1 full, MoE",
        {"layer_types": [CHUNKED] * 3 + [FULL], "moe_layers": [1, 3], "intermediate_size_mlp": 96},
        "attention_chunk_size",
        longer=True,
    ),
    # Recurrent states.
    "qwen3_next": Family("delta net 3:1 full, MoE", DELTA),
    "qwen3_5_text": Family("delta net 3:1 full", DELTA),
    "qwen3_5_moe_text": Family("delta net 3:1 full, MoE", DELTA),
    "qwen4_exp_text": Family(
        "delta net 3:1 sparse, n-grams, MoE",
        {
            **DELTA,
            "hc_lowrank": 16,
            "indexer_n_heads": 16,
            "indexer_kv_heads": 1,
            "indexer_head_dim": 16,
            "indexer_budget": 8,
            "indexer_compress_ratio": 2,
            "ple_layer_ids": [1],
            "ple_embed_dim": 64,
            "ngram_vocab_size_base": 512,
            "split_ngram_parts": 4,
            "eos_token_id": 1,
        },
    ),
    "olmo_hybrid": Family("delta net 3:1 full", DELTA),
    "kimi_linear": Family(
        "delta attention 3:1 latent, MoE", {**LATENT, **DELTA, "linear_head_dim": 16, "linear_num_heads": 4}
    ),
    "bailing_hybrid": Family("delta attention 3:1 latent, MoE", {**LATENT, **DELTA, "head_dim": 16}),
    "lfm2": Family("convolutions 3:1 full", CONVOLUTIONS),
    "lfm2_moe": Family("convolutions 3:1 full, MoE", CONVOLUTIONS),
    "lfm3": _sliding("convolutions, sliding, full", {"layer_types": ["conv", SLIDING, FULL, "conv"]}),
    "nemotron_h": Family(
        "Mamba-2, full, MoE",
        {
            "layers_block_type": ["mamba", "moe", "attention", "mamba"],
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
            "chunk_size": 16,
            "moe_shared_expert_intermediate_size": 32,
        },
    ),
    "granitemoehybrid": Family(
        "Mamba-2 3:1 full, MoE",
        {**DELTA, "mamba_n_heads": 8, "mamba_d_head": 16, "shared_intermediate_size": 32},
    ),
    "falcon_h1": Family("Mamba-2 beside full", {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64}),
    "bamba": Family("Mamba-2 3:1 full", {"attn_layer_indices": [2], "mamba_n_heads": 8, "mamba_d_head": 16}),
    "jamba": Family("Mamba-1 1:1 full, MoE", {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 8}),
    "zamba2": Family(
        "Mamba-2, then beside full",
        {
            "layers_block_type": [LINEAR, "hybrid", LINEAR, "hybrid"],
            "n_mamba_heads": 8,
            "mamba_ngroups": 2,
            "chunk_size": 16,
            "adapter_rank": 8,
        },
    ),
    "mamba2": Family("Mamba-2", {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 16}),
    "mamba": Family("Mamba-1", {"state_size": 16, "time_step_rank": 8}),
    "falcon_mamba": Family("Mamba-1", {"state_size": 16, "time_step_rank": 8}),
    "zaya": Family("convolutions beside full, MoE", {"num_experts_per_tok": 1, "router_hidden_size": 16}),
    "minimax": Family("lightning attention 1:1 full, MoE", {"layer_types": [LINEAR, FULL, LINEAR, FULL]}),
    "recurrent_gemma": Family("RG-LRU 2:1 sliding", window="attention_window_size"),
    # Sparse attention.
    "deepseek_v32": Family("sparse, latent, MoE", SPARSE),
    "glm_moe_dsa": Family("sparse, latent, MoE", SPARSE),
    "hy_v4": Family("sparse, latent, MoE", {**SPARSE, "indexer_types": ["full", "shared"] * 2}),
    "deepseek_v4": _sliding(
        "compressed and sliding, MoE",
        {
            "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"] * 2,
            "num_key_value_heads": 1,
            "q_lora_rank": 32,
            "o_groups": 2,
            "o_lora_rank": 16,
            "index_n_heads": 16,
            "index_head_dim": 16,
            "index_topk": 8,
            "qk_rope_head_dim": 8,
            "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
            "num_hash_layers": 1,
        },
    ),
    # Vision-language classes, read as text models.
    "qwen3_5": Family("delta net 3:1 full, sees", text="qwen3_5_text"),
    "gemma3": Family("sliding 1:1 full, sees", text="gemma3_text"),
    "mistral3": Family("full, sees", text="ministral3"),
}
"""By the model type of transformers."""


def built(kind: str, window: int = WINDOW, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A model of this family in float32 and evaluation mode, the same for the same seed.

    `window`: tokens of its window or chunk, if it has one. `changes`: further settings of its language model.
    """
    names = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES if FAMILIES[kind].text else MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    found = names[kind]
    model_class: Any = getattr(transformers, found if isinstance(found, str) else found[0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = cast(PreTrainedModel, model_class(config_of(kind, window, **changes)).float().eval())
        _widen(model)
    return model


def config_of(kind: str, window: int = WINDOW, **changes: Any) -> Any:
    """The configuration of a model of this family."""
    family = FAMILIES[kind]
    config_class: Any = CONFIG_MAPPING[kind]
    if family.text:
        text = config_of(family.text, window, **changes).to_dict()
        return config_class(text_config=text, vision_config=_SIGHT[kind], tie_word_embeddings=False)
    known = {one.name for one in dataclasses.fields(config_class)}
    shared = {name: value for name, value in SIZES.items() if name in known and name not in family.settings}
    own = {name: value for name, value in family.settings.items() if value is not None}
    return config_class(**{**shared, **own, **({family.window: window} if family.window else {}), **changes})


_SIGHT: dict[str, dict[str, Any]] = {
    "qwen3_5": {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64},
    "gemma3": {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2},
    "mistral3": {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2},
}
"""The vision towers. No picture is read."""


@torch.no_grad()
def _widen(model: PreTrainedModel) -> None:
    """Normal weights of std 1 / sqrt(inputs), embeddings of 1 (0.15 where tied), convolutions of 0.5.

    Weights that transformers initialises by a rule of its own stay: norms, biases, decays.
    """
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    embeddings = {id(one.weight) for one in model.modules() if isinstance(one, nn.Embedding)}
    convolutions = {id(one.weight) for one in model.modules() if isinstance(one, nn.Conv1d)}
    for name, weight in model.named_parameters():
        if id(weight) in embeddings:
            nn.init.normal_(weight, std=0.15 if tied else 1.0)
        elif id(weight) in convolutions:
            nn.init.normal_(weight, std=0.5)
        elif weight.ndim > 1 and not name.endswith("A_log"):
            nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
