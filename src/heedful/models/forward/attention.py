"""Which Hugging Face models are causal, and how far they read.

A causal model reads only the tokens before a position. Windows, chunks, recurrent states and shared keys are causal.
Which way to sample, score and learn is exact for a model is found by a probe (`exactness.py`), not by its config.
"""

from __future__ import annotations

from typing import Any

from transformers import AutoModelForCausalLM, PreTrainedModel


def refuse_unless_causal(model: PreTrainedModel) -> None:
    """Raise ValueError for an encoder-decoder, and for a model whose attention also reads later tokens."""
    config = model.config.get_text_config(decoder=True)
    both_ways = any(getattr(module, "is_causal", True) is False for module in model.get_decoder().modules())
    if model.config.is_encoder_decoder or both_ways or getattr(config, "use_bidirectional_attention", False) is True:
        found = "an encoder-decoder" if model.config.is_encoder_decoder else "bidirectional attention"
        raise ValueError(
            f"Expected a causal language model, found {found} in {type(model).__name__}: its probabilities of a token "
            "depend on later tokens. Use a causal model, or switch this off in its config if its weights allow that."
        )


def longest_context_of(whole: Any) -> int | None:
    """Most tokens, replies included, for which cached keys of a model with this configuration stay valid.

    `None` = it names no limit.
    """
    config = whole.get_text_config(decoder=True)
    limit = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    for one in (rope, *(value for value in rope.values() if isinstance(value, dict))):  # one for each type of layer
        if one.get("rope_type") in ("dynamic", "longrope"):
            # Beyond this length these types change the rotation of tokens that are already in the cache.
            limit = one.get("original_max_position_embeddings", limit)
    return limit or None


def carries_states(whole: Any) -> bool:
    """Whether models of this configuration carry a state from token to token: recurrent layers or short convolutions.

    Such a layer reads rows that are packed into one as a single text, unless the model was told where each begins.
    """
    config = whole.get_text_config(decoder=True)
    kinds = {*(getattr(config, "layer_types", None) or ())}
    if {kind for kind in kinds if "attention" not in kind} | kinds & {"linear_attention"}:
        return True
    known = AutoModelForCausalLM._model_mapping.get(type(config), None)
    return bool(getattr(known, "_is_stateful", False))
