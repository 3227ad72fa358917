"""Model folders in the Hugging Face format: models and tokenizers by the name that the user gave.

Every fault of a folder is raised as a sentence. A model that cannot be sampled or scored exactly is refused. Local
folders are read without progress bars.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.hub import cached_file

from heedful.boundary.jsontext import read_json
from heedful.boundary.trust import trusts_code_of
from heedful.guarded import Answered, guarded_call
from heedful.models.chat.turn_ends import named_stop_ids
from heedful.models.forward.attention import refuse_unless_causal
from heedful.models.forward.fast_linear import quicken
from heedful.models.gguf import converted
from heedful.models.own_tokenizer import TokenizerRead, own_tokenizer
from heedful.models.sight import VisionConfig
from heedful.models.vision.loading import give_vision, sees
from heedful.models.writing import quiet
from heedful.pixels import need_pillow

Answer = TypeVar("Answer")

_AS_IN_FOLDER = VisionConfig()
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    name: str, device: torch.device, dtype: str = "float32", vision: VisionConfig = _AS_IN_FOLDER
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model in evaluation mode on `device`, with its tokenizer. Its linear layers are those of `fast_linear.quicken`.

    `vision`: how a model with a vision tower reads pictures.

    Raises:
        ValueError: there is no such model, it is not a causal language model, its
            tokenizer has ids that it cannot read, or its pictures cannot be read exactly.
        ImportError: a model with a vision tower needs Pillow.
    """
    remedy = "Give a folder with config.json, weights and tokenizer files, or let heedful's own seedling play."
    model = read_model(name, _DTYPES[dtype], remedy)
    refuse_unless_causal(model)
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
    read_vision(model, tokenizer, name, remedy, vision)
    return model, tokenizer


def read_model(source: str | Path, dtype: torch.dtype, remedy: str) -> PreTrainedModel:
    """The causal language model that `source` names, in evaluation mode on the CPU. It may have a vision tower.

    `source`: a folder, a Hugging Face name, `smollm2` or `gemma3_270m`; these two are converted once, into the cache.

    Attention is torch's own (`sdpa`), or `eager` where the model has only that. `remedy`: the last sentence of the
    error. Code that the model brings runs only if the user has named the model as trusted.

    Raises:
        ValueError: there is no such model, it is no causal language model, or some of its weights are missing.
    """
    source, remedy = _folder_of(source, remedy)

    def load() -> PreTrainedModel:
        if (Path(source) / "adapter_config.json").exists():
            # transformers would load the base model with it, freeze all weights, and save the adapter alone.
            raise ValueError(
                "it holds an adapter (adapter_config.json). Merge it into its base model with peft's merge_and_unload, "
                "save the result as a folder, and name that"
            )
        trusted = trusts_code_of(source)
        kind: Any = AutoModelForImageTextToText if sees(source, trusted) else AutoModelForCausalLM
        loaded: Any = kind.from_pretrained(source, dtype=dtype, output_loading_info=True, trust_remote_code=trusted)
        model, report = loaded
        if report["missing_keys"]:
            # transformers would use random numbers for them.
            raise ValueError(f"no weights for {', '.join(sorted(report['missing_keys'])[:3])}")
        if (ends := Path(source) / "generation_config.json").is_file():
            # transformers goes on without a file that it cannot read, one with a byte order mark included.
            named = cast(dict[str, Any], read_json(ends))
            model.generation_config.eos_token_id = named.get("eos_token_id", model.generation_config.eos_token_id)
        return cast(PreTrainedModel, model.eval())

    return _read(load, source, "a causal language model", remedy)


def without_weights(source: str, dtype: str, known: Mapping[str, Any] | None = None) -> PreTrainedModel:
    """The model that `source` names on torch's device `meta`, which holds sizes of weights and no numbers.

    `known`: what its config.json says, so that it is not looked for. Raises ValueError if there is no such model.
    """
    place, remedy = (source, "") if known else _folder_of(source, "Name a loaded model with --model.")

    def load() -> PreTrainedModel:
        trusted = trusts_code_of(place)
        config = (
            AutoConfig.for_model(**known) if known else AutoConfig.from_pretrained(place, trust_remote_code=trusted)
        )
        causal = trusted or type(config) in AutoModelForCausalLM._model_mapping
        kind: Any = AutoModelForCausalLM if causal else AutoModelForImageTextToText
        with torch.device("meta"):
            return cast(PreTrainedModel, kind.from_config(config, dtype=_DTYPES[dtype], trust_remote_code=trusted))

    return _read(load, place, "a causal language model", remedy)


def read_tokenizer(source: str | Path, remedy: str) -> PreTrainedTokenizerBase:
    """The tokenizer that `source` names as for `read_model`, with a warning where transformers would read another one.

    Raises ValueError with a sentence that ends in `remedy`.
    """
    read = read_own_tokenizer(source, remedy)
    if read.note:
        warnings.warn(read.note, stacklevel=2)
    return read.tokenizer


def read_own_tokenizer(source: str | Path, remedy: str) -> TokenizerRead:
    """The same, with the sentence in place of a warning."""
    source, remedy = _folder_of(source, remedy)

    def load() -> TokenizerRead:
        trusted = trusts_code_of(source)
        loaded = AutoTokenizer.from_pretrained(source, trust_remote_code=trusted)
        return TokenizerRead(loaded) if trusted else own_tokenizer(loaded, source)

    return _read(load, source, "a tokenizer", remedy)


def read_vision(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str | Path,
    remedy: str,
    config: VisionConfig = _AS_IN_FOLDER,
) -> None:
    """Make a model with a vision tower read pictures, with the processor that `source` names. Others stay as they are.

    Raises ValueError with a sentence that ends in `remedy`, and ImportError without Pillow.
    """
    place, remedy = _folder_of(source, remedy)
    trusted = trusts_code_of(place)
    if sees(place, trusted):
        need_pillow()
        _read(lambda: give_vision(model, tokenizer, place, trusted, config), place, "a model that sees", remedy)


def _folder_of(source: str | Path, remedy: str) -> tuple[str | Path, str]:
    """Where the model lies, and what helps if it cannot be read there."""
    place = converted(source)
    return place, remedy if place == source else f"Delete the folder {place} to convert {source} again."


def _read(load: Callable[[], Answer], source: str | Path, expected: str, remedy: str) -> Answer:
    """What `load` returns. Raises a sentence with the place and the remedy for whatever it raises.

    The libraries that read the files of others raise errors of any class, `Exception` itself included.
    """
    with quiet(source):
        answer = guarded_call(load)
    if isinstance(answer, Answered):
        return answer.value
    error = answer.error
    where = f"in {source}" if Path(source).exists() else f"at {str(source)!r} (no such folder, so a Hugging Face name)"
    known = isinstance(error, OSError | ValueError | RuntimeError)
    first, *more = (str(error) if known else str(answer)).splitlines() or [""]
    # What ends in a colon announces the line after it.
    told = " ".join([first, more[0].strip()] if first.endswith(":") and more else [first]).strip()
    reason = told.rstrip(".:") or type(error).__name__
    if "ignore_mismatched_sizes" in reason:  # transformers speaks of a report that it has only logged
        reason = "its weights have other sizes than its config.json asks for"
    if "custom code" in reason:
        reason = (
            "it brings code of its own, which is not run. If you trust that code, add --trust-model-code "
            f"{source} (in Python: trust=[{str(source)!r}])"
        )
    raise ValueError(f"Expected {expected} {where}, but it could not be loaded: {reason}. {remedy}") from error


def stop_ids(model: PreTrainedModel) -> list[int]:
    """The model's own end-of-sequence ids."""
    return named_stop_ids(model.generation_config)


def stop_ids_beside(source: str) -> list[int]:
    """The end-of-sequence ids that the generation_config.json beside a tokenizer names. Empty without such a file."""
    try:
        file = cached_file(str(converted(source)), "generation_config.json")
    except OSError:  # there is none
        return []
    return named_stop_ids(SimpleNamespace(**cast(dict[str, Any], read_json(Path(cast(str, file))))))


def pick_device(name: str) -> torch.device:
    """The device of this name. `auto` = cuda, else mps, else cpu. Raises ValueError for a device that is missing."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(name):
        have = ", ".join(device for device, available in there.items() if available)
        raise ValueError(f"--device {name!s:.80} was asked for, but torch sees only: {have}. Choose one, or auto.")
    return torch.device(name)
