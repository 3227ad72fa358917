"""Loading a causal language model and its tokenizer by the name that the user gave.

A model that cannot be sampled or scored exactly is refused here with a sentence.
"""

from __future__ import annotations

from typing import cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.models.attention import refuse_unless_plain_causal
from heedful.models.fast_linear import quicken
from heedful.models.folders import read_model, read_tokenizer
from heedful.models.stop_ids import named_stop_ids

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    name: str, device: torch.device, dtype: str = "float32"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model in evaluation mode on `device`, with its tokenizer. Its linear layers are those of `fast_linear.quicken`.

    Raises:
        ValueError: there is no such model, it is not a causal language model, or its attention is not plain causal.
    """
    remedy = "Give a folder with config.json, weights and tokenizer files, or --model seedling."
    model = read_model(name, _DTYPES[dtype], remedy)
    refuse_unless_plain_causal(model)
    tokenizer = read_tokenizer(name, remedy)
    cast(torch.nn.Module, model).to(device)
    quicken(model)
    return model, tokenizer


def stop_ids(model: PreTrainedModel) -> list[int]:
    """The model's own end-of-sequence ids."""
    return named_stop_ids(model.generation_config)


def pick_device(name: str) -> torch.device:
    """The device of this name. `auto` = cuda, else mps, else cpu. Raises ValueError for a device that is missing."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[name]:
        have = ", ".join(device for device, available in there.items() if available)
        raise ValueError(f"--device {name} was asked for, but torch sees only: {have}. Choose one of them, or auto.")
    return torch.device(name)
