"""Loading a causal language model and its tokenizer from a local path or a Hugging Face name.

Promise: what cannot be sampled or scored exactly is refused here, in a sentence, before any time is spent.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    name: str, device: torch.device, dtype: str = "float32"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model in evaluation mode on `device`, with its tokenizer.

    Raises:
        ValueError: there is no such model, it is not a causal language model, or its attention is not plain causal.
    """
    where = f"the path {name}" if Path(name).exists() else f"{name!r} (no local path; looked up as a Hugging Face name)"
    try:
        config = AutoConfig.from_pretrained(name)
        check_plain_causal(config)
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForCausalLM.from_pretrained(name, dtype=_DTYPES[dtype], attn_implementation="sdpa")
    except (OSError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"Expected a causal language model at {where}, but it could not be loaded: {reason}. "
            "Give a folder with config.json, weights and tokenizer files, or --model seedling."
        ) from error
    return model.to(device).eval(), tokenizer


def check_plain_causal(config: object) -> None:
    """Raise if a model's attention is not plain causal over the whole context: our caches would not be exact."""
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if getattr(config, "layer_types", None):
        window = None  # the layer types say it exactly
    if kinds or window or getattr(config, "is_encoder_decoder", False):
        found = ", ".join(sorted(kinds)) or (f"a sliding window of {window}" if window else "an encoder-decoder")
        raise ValueError(
            f"Expected a causal language model with full attention in every layer, found {found} "
            f"({type(config).__name__}). Choose a model with full attention, such as Qwen2.5 or Llama 3."
        )


def pick_device(name: str) -> torch.device:
    """`auto` = cuda, else mps, else cpu. Raises a sentence for a device that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[name]:
        have = ", ".join(device for device, available in there.items() if available)
        raise ValueError(f"--device {name} was asked for, but torch sees only: {have}. Choose one of them, or auto.")
    return torch.device(name)
