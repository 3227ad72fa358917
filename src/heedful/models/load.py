"""Loading a causal language model and its tokenizer by the name that the user gave.

A model that cannot be sampled or scored exactly is refused here with a sentence.
"""

from __future__ import annotations

from typing import cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.models.chat.turn_ends import named_stop_ids
from heedful.models.folders import open_eyes, read_model, read_tokenizer
from heedful.models.forward.attention import refuse_unless_plain_causal
from heedful.models.forward.fast_linear import quicken
from heedful.models.sight import VisionConfig

_AS_IN_FOLDER = VisionConfig()
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    name: str, device: torch.device, dtype: str = "float32", vision: VisionConfig = _AS_IN_FOLDER
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model in evaluation mode on `device`, with its tokenizer. Its linear layers are those of `fast_linear.quicken`.

    `vision`: how a model with a vision tower reads pictures.

    Raises:
        ValueError: there is no such model, it is not a causal language model, its attention is not plain causal, its
            tokenizer has ids that it cannot read, or its pictures cannot be read exactly.
        ImportError: a model with a vision tower needs Pillow.
    """
    remedy = "Give a folder with config.json, weights and tokenizer files, or let heedful's own seedling play."
    model = read_model(name, _DTYPES[dtype], remedy)
    refuse_unless_plain_causal(model)
    tokenizer = read_tokenizer(name, remedy)
    rows = cast(torch.Tensor, model.get_input_embeddings().weight).shape[0]
    beyond = {token: id for token, id in tokenizer.get_vocab().items() if id >= rows and id != tokenizer.pad_token_id}
    if beyond:
        token = min(beyond, key=beyond.__getitem__)
        raise ValueError(
            f"Expected a tokenizer in {name} whose ids the model can read, found {len(beyond):,} ids beyond its "
            f"{rows:,} embeddings, the first of them {token[:100]!r} ({beyond[token]}). Give the tokenizer of this "
            "model, or resize the embeddings."
        )
    cast(torch.nn.Module, model).to(device)
    quicken(model)
    open_eyes(model, tokenizer, name, remedy, vision)
    return model, tokenizer


def stop_ids(model: PreTrainedModel) -> list[int]:
    """The model's own end-of-sequence ids."""
    return named_stop_ids(model.generation_config)


def pick_device(name: str) -> torch.device:
    """The device of this name. `auto` = cuda, else mps, else cpu. Raises ValueError for a device that is missing."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(name):
        have = ", ".join(device for device, available in there.items() if available)
        raise ValueError(f"--device {name!s:.80} was asked for, but torch sees only: {have}. Choose one, or auto.")
    return torch.device(name)
