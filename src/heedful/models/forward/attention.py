"""The check which Hugging Face models may share the KV cache of a prompt among all its continuations.

An accepted model attends causally to every earlier token in every layer. Only its config and modules are read, without
any computation.
"""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel


def refuse_unless_plain_causal(model: PreTrainedModel) -> None:
    """Raise ValueError unless every layer of `model` has causal full attention and its own keys.

    A sliding window is refused at every length, since nothing limits how long a scored sequence will be.
    """
    found = obstacle_to_shared_prompts(model)
    if found:
        raise ValueError(
            f"Expected a causal model with full attention in every layer, found {found} in {type(model).__name__}: "
            "sampling and scoring with a KV cache would not be exact. Use a model with full attention, such as Qwen2.5 "
            "or Llama 3, or switch this off in its config if its weights allow that."
        )


def longest_context(model: PreTrainedModel) -> int | None:
    """Most tokens, replies included, for which cached keys stay valid. `None` = the config names no limit."""
    return longest_context_of(model.config)


def longest_context_of(whole: Any) -> int | None:
    """The same for the configuration of a model."""
    config = whole.get_text_config(decoder=True)
    limit = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        # Beyond this length these types change the rotation of tokens that are already in the cache.
        limit = rope.get("original_max_position_embeddings", limit)
    return limit or None


def obstacle_to_shared_prompts(model: PreTrainedModel) -> str:
    """The reason why the KV cache of a prompt cannot be shared, in a few words. Empty if it can."""
    config = model.config.get_text_config(decoder=True)
    if model.config.is_encoder_decoder:
        return "an encoder-decoder"
    if getattr(model, "_is_stateful", False):
        return "recurrent state"
    types = getattr(config, "layer_types", None)
    other = {*(types or ()), *(getattr(config, "attention_layers", None) or ())} - {"full_attention", "global"}
    if other:
        return f"layers of type {', '.join(sorted(map(str, other)))}"
    window = getattr(config, "sliding_window", None)
    if types is None and window is not None and getattr(config, "use_sliding_window", True):
        return f"a sliding window of {window} tokens"
    if types is None and getattr(config, "attention_chunk_size", None) is not None:
        return f"attention in chunks of {config.attention_chunk_size} tokens"
    if getattr(config, "index_topk", None) is not None:
        return f"sparse attention to {config.index_topk} tokens"
    if getattr(config, "num_kv_shared_layers", None) or "reuse" in (getattr(config, "kv_sharing_modes", None) or ()):
        return "layers that share keys and values"
    bidirectional = any(getattr(module, "is_causal", True) is False for module in model.get_decoder().modules())
    if bidirectional or getattr(config, "use_bidirectional_attention", False):
        return "bidirectional attention"
    return ""
