"""Loading a causal language model and its tokenizer by the name that the user gave.

A model that cannot be sampled or scored exactly is refused here with a sentence.
"""

from __future__ import annotations

from typing import cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.guarded import Raised, guarded_call
from heedful.models.chat.turn_ends import named_stop_ids
from heedful.models.folders import open_eyes, read_model, read_tokenizer
from heedful.models.forward.attention import longest_context, refuse_unless_plain_causal
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
            tokenizer or its ends of a reply have ids that it cannot read, it cannot read two tokens, or its pictures
            cannot be read exactly.
        ImportError: a model with a vision tower needs Pillow.
    """
    remedy = "Give a folder with config.json, weights and tokenizer files, or let heedful's own seedling play."
    if dtype not in _DTYPES:
        raise ValueError(f"Expected a dtype of {' or '.join(_DTYPES)}, found {dtype!r:.80}.")
    model = read_model(name, _DTYPES[dtype], remedy)
    refuse_unless_plain_causal(model)
    longest_context(model)
    tokenizer = read_tokenizer(name, remedy)
    _refuse_ids_beyond(model, tokenizer, name)
    cast(torch.nn.Module, model).to(device)
    quicken(model)
    refuse_unreadable(model, name)
    open_eyes(model, tokenizer, name, remedy, vision)
    return model, tokenizer


def stop_ids(model: PreTrainedModel) -> list[int]:
    """The model's own end-of-sequence ids."""
    return named_stop_ids(model.generation_config)


def _refuse_ids_beyond(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Refuse a tokenizer with ids that the model has no embedding for. An id of padding alone is never read."""
    rows = _embeddings(model)
    beyond = {token: id for token, id in tokenizer.get_vocab().items() if id >= rows and id != tokenizer.pad_token_id}
    if beyond:
        token = min(beyond, key=beyond.__getitem__)
        raise ValueError(
            f"Expected a tokenizer in {name} whose ids the model can read, found {len(beyond):,} ids beyond its "
            f"{rows:,} embeddings, the first of them {token[:100]!r} ({beyond[token]}). Give the tokenizer of this "
            "model, or resize the embeddings."
        )
    ends = [id for id in stop_ids(model) if id >= rows]
    if ends:
        raise ValueError(
            f"Expected ids of tokens as eos_token_id in {name}, found {str(ends[0])[:100]}, which is beyond its "
            f"{rows:,} embeddings: no reply could end with it. Correct its generation_config.json."
        )


def refuse_unreadable(model: PreTrainedModel, name: str) -> None:
    """Refuse a model that gives no logits for two tokens. Settings may be read only when it computes."""

    def read() -> torch.Tensor:
        with torch.inference_mode():
            return model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=model.device)).logits

    answer = guarded_call(read)
    if isinstance(answer, Raised):
        if isinstance(answer.error, MemoryError | torch.OutOfMemoryError):
            raise answer.error
        reason = (str(answer).splitlines() or [""])[0].rstrip(".:")
        raise ValueError(
            f"Expected a causal language model in {name} that gives logits, but it fails at two tokens: {reason}. "
            "Correct its config.json, or give another model."
        ) from answer.error


def _embeddings(model: PreTrainedModel) -> int:
    """How many ids the model can read."""
    return int(cast(torch.Tensor, model.get_input_embeddings().weight).shape[0])


def pick_device(name: str) -> torch.device:
    """The device of this name. `auto` = cuda, else mps, else cpu. Raises ValueError for a device that is missing."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(name):
        have = ", ".join(device for device, available in there.items() if available)
        raise ValueError(f"--device {name!s:.80} was asked for, but torch sees only: {have}. Choose one, or auto.")
    return torch.device(name)
