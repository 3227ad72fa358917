"""Model folders in the Hugging Face format: weights and tokenizers, read and written.

Every fault of a folder or a disk is raised as a sentence or as an `OSError`. Local folders are read and written
without progress bars.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from heedful.boundary.jsontext import read_json
from heedful.boundary.open_files import refuse_other_bytes, refuse_pipes
from heedful.boundary.trust import trusts_code_of
from heedful.guarded import Answered, guarded_call
from heedful.models.gguf import converted
from heedful.models.own_tokenizer import TokenizerRead, own_tokenizer
from heedful.models.sight import VisionConfig
from heedful.models.vision.loading import give_vision, sees, write_processor
from heedful.models.writing import Saveable, quiet, write_weights
from heedful.pixels import need_pillow

Answer = TypeVar("Answer")

_AS_IN_FOLDER = VisionConfig()

MOST_LAYERS = 1_000
MOST_LABELS = 100_000
_LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth", "num_blocks"),
    *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"),
)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_COUNTED = {
    **dict.fromkeys(_LAYERS, ("layers", MOST_LAYERS)),
    **dict.fromkeys(_EXPERTS, ("experts", MOST_LABELS)),
    "num_labels": ("labels", MOST_LABELS),
}
"""Names that architectures give to what transformers makes one by one, and how many are read."""


def read_model(source: str | Path, dtype: torch.dtype, remedy: str) -> PreTrainedModel:
    """The causal language model that `source` names, in evaluation mode on the CPU. It may have a vision tower.

    `source`: a folder, a Hugging Face name, a GGUF file, or `smollm2`; a file is converted once, into the cache.

    Attention is torch's own (`sdpa`), which takes any mask. `remedy`: the last sentence of the error. Code that the
    model brings runs only if the user has named the model as trusted.

    Raises:
        ValueError: there is no such model, it is no causal language model, or some of its weights are missing.
    """
    source, remedy = _folder_of(source, remedy)

    def load() -> PreTrainedModel:
        _refuse_adapter(Path(source))
        _refuse_endless(Path(source) / "config.json")
        trusted = trusts_code_of(source)
        kind: Any = AutoModelForImageTextToText if sees(source, trusted) else AutoModelForCausalLM
        loaded: Any = kind.from_pretrained(
            source, dtype=dtype, attn_implementation="sdpa", output_loading_info=True, trust_remote_code=trusted
        )
        model, report = loaded
        if report["missing_keys"]:
            # transformers would use random numbers for them.
            raise ValueError(f"no weights for {', '.join(sorted(report['missing_keys'])[:3])}")
        _tell_unread(source, sorted(report["unexpected_keys"]))
        _name_ends(model, Path(source) / "generation_config.json")
        found: PreTrainedModel = model.eval()
        return found

    return _read(load, source, "a causal language model", remedy)


def _tell_unread(source: str | Path, names: Sequence[str]) -> None:
    """Warn of tensors that the model has no place for. Some are meant to be left out, such as the head of a critic."""
    if names:
        several = f"{len(names):,} tensors" if len(names) > 1 else "a tensor"
        warnings.warn(
            f"The weights in {source} hold {several} that the model of its config.json has no place for "
            f"({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}). They are not read. If it should have more "
            "layers, correct config.json.",
            stacklevel=2,
        )


def _folder_of(source: str | Path, remedy: str) -> tuple[str | Path, str]:
    """Where the model lies, and what helps if it cannot be read there."""
    place = converted(source)
    return place, remedy if place == source else f"Delete the folder {place} to convert {source} again."


def _refuse_adapter(folder: Path) -> None:
    """transformers would load an adapter's base model with it, freeze all weights, and save the adapter alone."""
    if (folder / "adapter_config.json").exists():
        raise ValueError(
            "it holds an adapter (adapter_config.json). Merge it into its base model with peft's merge_and_unload, "
            "save the result as a folder, and name that"
        )


def _refuse_endless(config: Path) -> None:
    """transformers would build the layers of a folder one by one, however many there are to be.

    It would also compute with a base of positions of zero. A configuration may hold others, of its text or its vision.
    """
    trees = [read_json(config)] if config.is_file() else []
    while trees:
        tree = trees.pop()
        for name, value in tree.items() if isinstance(tree, dict) else ():
            # Attention takes the NaN scores of such positions for zero, so the logits would be finite.
            if name == "rope_theta" and isinstance(value, int | float) and not 0 < value < math.inf:
                raise ValueError(f"its config.json has rope_theta = {value!r:.40}, expected a number above 0")
            if value != value:  # all logits would be NaN
                raise ValueError(f"its config.json has {name:.100} = nan, expected a number")
            made, most = _COUNTED.get(name, ("", math.inf))
            if isinstance(value, int | float) and value > most:
                raise ValueError(f"its config.json names {value:,} {made} ({name}), expected {most:,} at most")
            if isinstance(value, dict):
                trees.append(value)


def _name_ends(model: Any, file: Path) -> None:
    """Give the model the ends of a reply that its folder names.

    transformers goes on without a file that it cannot read, one with a byte order mark included.
    """
    if not file.is_file():
        return
    try:
        tree = read_json(file)
    except ValueError as error:
        raise ValueError(f"its {file.name} holds {error}") from error
    if isinstance(tree, dict) and "eos_token_id" in tree:
        model.generation_config.eos_token_id = tree["eos_token_id"]


def _shards(folder: Path) -> Iterator[Path]:
    """The files that the folder's lists of weights name. They may lie anywhere."""
    for index in sorted(folder.glob("*.index.json")):
        tree = read_json(index)
        places = tree.get("weight_map") if isinstance(tree, dict) else None
        named = places.values() if isinstance(places, dict) else ()
        yield from sorted({folder / name for name in named if isinstance(name, str)})


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


def open_eyes(
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


@dataclass(frozen=True, slots=True)
class WholeWeights:
    """A model that is saved with weights other than its own, under the same names."""

    model: PreTrainedModel
    weights: Mapping[str, torch.Tensor]

    def save_pretrained(self, folder: Path) -> None:
        self.model.save_pretrained(folder, state_dict=dict(self.weights))


def whole_tensors(saveable: Saveable | PreTrainedModel) -> dict[str, torch.Tensor]:
    """The tensors that a model folder would have. One that several names share is given once, under its first name."""
    if isinstance(saveable, WholeWeights):
        named = saveable.weights
    else:
        merged = getattr(saveable, "merged", None)
        named = cast(torch.nn.Module, saveable).state_dict() if merged is None else merged()
    found: dict[int, str] = {}
    for name, tensor in named.items():
        found.setdefault(tensor.data_ptr(), name)
    return {name: named[name] for name in found.values()}


def write_pretrained(folder: Path, model: Saveable | PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write both into `folder`. Raises OSError, with its number, when the disk does not take them."""
    write_weights(folder, model)
    with quiet(folder):
        tokenizer.save_pretrained(folder)
        write_processor(folder, model)


def _read(load: Callable[[], Answer], source: str | Path, expected: str, remedy: str) -> Answer:
    """What `load` returns. Raises a sentence with the place and the remedy for whatever it raises.

    The libraries that read the files of others raise errors of any class, `Exception` itself included.
    """

    refuse_other_bytes(Path(source))

    def read() -> Answer:
        refuse_pipes(Path(source))
        for shard in _shards(Path(source)):
            refuse_pipes(shard)
        return load()

    with quiet(source):
        answer = guarded_call(read)
    if isinstance(answer, Answered):
        return answer.value
    error = answer.error
    where = f"in {source}" if Path(source).exists() else f"at {str(source)!r} (no such folder, so a Hugging Face name)"
    known = isinstance(error, OSError | ValueError | RuntimeError)
    lines = (str(error) if known else str(answer)).splitlines()
    # What ends in a colon announces the line after it.
    told = " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1]) if lines else ""
    reason = told.rstrip(".:") or type(error).__name__
    if "ignore_mismatched_sizes" in reason:  # transformers speaks of a report that it has only logged
        reason = "its weights have other sizes than its config.json asks for"
    if "custom code" in reason:
        reason = (
            "it brings code of its own, which is not run. If you trust that code, add --trust-model-code "
            f"{source} (in Python: trust=[{str(source)!r}])"
        )
    raise ValueError(f"Expected {expected} {where}, but it could not be loaded: {reason}. {remedy}") from error
