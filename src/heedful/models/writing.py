"""Model folders written: weights and tokenizers, without progress bars, one at a time."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import logging

from heedful.models.vision.loading import write_processor

if TYPE_CHECKING:
    import torch

making_a_model = threading.RLock()
"""Held while transformers makes, reads or writes a model: it replaces methods of all models meanwhile.

Two threads at the same time would lose tied weights, and so would all models of the process from then on.
"""


class Saveable(Protocol):
    """Writes config.json and weights into a folder, as its model does."""

    @property
    def model(self) -> PreTrainedModel: ...

    def save_pretrained(self, folder: Path) -> None: ...


def write_weights(folder: Path, model: Saveable | PreTrainedModel) -> None:
    """Write the model alone into `folder`. Raises OSError, with its number, when the disk does not take it.

    The caller chooses the rank that writes, since each machine of a run has a cache of its own. transformers writes on
    rank 0 alone as soon as torch.distributed is initialised.
    """
    written: Any = model if isinstance(model, PreTrainedModel) else model.model
    with quiet(folder), errors_of_the_disk(folder):
        written.should_save_on_this_rank = bool  # of `is_main_process`, which is true
        try:
            model.save_pretrained(folder)
        finally:
            del written.should_save_on_this_rank
    # safetensors lets nobody but the owner read its files. A run may be shared, and then the rest of it can be read.
    for weights in folder.rglob("*.safetensors"):
        shutil.copymode(folder / "config.json", weights)


@contextmanager
def errors_of_the_disk(path: Path) -> Iterator[None]:
    """Raise OSError, with its number, where safetensors cannot write `path`. Callers know a full disk by its number."""
    try:
        yield
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))  # it is only in the text
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


@contextmanager
def quiet(source: str | Path) -> Iterator[None]:
    """One thread at a time, and no progress bars of transformers for a local folder. A download keeps its own."""
    with making_a_model:
        if not Path(source).exists() or not logging.is_progress_bar_enabled():
            yield
            return
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.enable_progress_bar()


@dataclass(frozen=True, slots=True)
class WholeWeights:
    """A model that is saved with weights other than its own, under the same names."""

    model: PreTrainedModel
    weights: Mapping[str, torch.Tensor]

    def save_pretrained(self, folder: Path) -> None:
        self.model.save_pretrained(folder, state_dict=dict(self.weights))


def whole_tensors(saveable: Saveable | PreTrainedModel) -> dict[str, torch.Tensor]:
    """The tensors that a model folder would have. One that several names share is given once, under its first name.

    In a folder, experts and some other weights have other names and shapes than in the model (transformers 5).
    """
    if isinstance(saveable, WholeWeights):
        named = saveable.weights
    else:
        merged = getattr(saveable, "merged", None)
        named = cast("torch.nn.Module", saveable).state_dict() if merged is None else merged()
    found: dict[int, str] = {}
    for name, tensor in named.items():
        found.setdefault(tensor.data_ptr(), name)
    model = saveable if isinstance(saveable, PreTrainedModel) else saveable.model
    return revert_weight_conversion(model, {name: named[name] for name in found.values()})


def write_pretrained(folder: Path, model: Saveable | PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write both into `folder`. Raises OSError, with its number, when the disk does not take them."""
    write_weights(folder, model)
    with quiet(folder):
        tokenizer.save_pretrained(folder)
        write_processor(folder, model)
