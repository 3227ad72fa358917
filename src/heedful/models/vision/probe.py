"""The probe of a model that sees: our reading of rows with pictures must give the model's own log-probabilities.

The model's own forward pass reads two pictures with text before, between and after them, as its processor prepares
them. Our way reads the same row whole, and in two pieces with a KV cache.
"""

from __future__ import annotations

import inspect
import io
import random
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from heedful.models.forward.exactness import evaluating, wide
from heedful.models.vision.pictures import Picture
from heedful.models.vision.vision import Vision
from heedful.pixels import decoded
from heedful.types import Image

ALLOWED = 1e-4
"""Nats of one log-probability in float32. Half precision is allowed as much more as it is coarser."""
_SIZES = ((56, 56), (112, 56))
_TEXT = 7
"""Tokens before, between and after the pictures."""


def refuse_unless_exact(model: PreTrainedModel, vision: Vision) -> None:
    """Raise ValueError unless rows with pictures are read as the model itself reads them."""
    with evaluating(model), torch.no_grad():
        row, cut, own_TV = _own(model, vision)
        texts = [place for place, id in enumerate(row) if id >= 0]
        ids_1T, cache = torch.tensor([row], device=model.device), DynamicCache()
        whole = model(input_ids=ids_1T, use_cache=False).logits
        parts = [
            model(input_ids=part, past_key_values=cache, use_cache=True).logits
            for part in (ids_1T[:, :cut], ids_1T[:, cut:])
        ]
        for way, logits_1TV in (("read whole", whole), ("read in two pieces", torch.cat(parts, dim=1))):
            found_TV = _logprobs(logits_1TV)
            error = float((found_TV[texts] - own_TV[texts]).abs().max())
            allowed = ALLOWED * torch.finfo(model.dtype).eps / torch.finfo(torch.float32).eps
            if not error <= allowed:
                raise ValueError(
                    f"Expected a model whose pictures heedful reads exactly, found log-probabilities that differ by "
                    f"{error:.2g} nats from those of its own forward pass, {way} ({type(model).__name__}). Use another "
                    "model, or an observation in text."
                )


def _own(model: PreTrainedModel, vision: Vision) -> tuple[list[int], int, Tensor]:
    """A row of text and pictures, a place between the pictures, and the model's own log-probabilities `[T, V]`."""
    shown = [vision.show(image) for image in _images()]
    generator = random.Random(0)
    vocabulary = cast(Tensor, model.get_input_embeddings().weight).shape[0]
    special = set(filter(lambda id: id >= 0, (id for picture in shown for id in picture.ids)))
    words = [id for id in range(min(vocabulary, 4096)) if id != vision.placeholder and id not in special]

    def text() -> list[int]:
        return [generator.choice(words) for _ in range(_TEXT)]

    row = [*text(), *shown[0].ids, *text(), *shown[1].ids, *text()]
    placeholders = [vision.placeholder if id < 0 else id for id in row]
    ids_1T = torch.tensor([placeholders], device=model.device)
    output = vision.own_forward(input_ids=ids_1T, use_cache=False, **_values(model, vision, shown, ids_1T))
    return row, 2 * _TEXT + len(shown[0].ids) - 2, _logprobs(output.logits)


def _values(model: PreTrainedModel, vision: Vision, shown: list[Picture], ids_1T: Tensor) -> dict[str, Any]:
    made = vision.processor.made([decoded(picture.image.png) for picture in shown])
    values: dict[str, Any] = {name: value.to(model.device) for name, value in made.values.items()}
    taken = inspect.signature(type(model).forward).parameters
    if "mm_token_type_ids" in taken:
        values["mm_token_type_ids"] = (ids_1T == vision.placeholder).int()
    return {name: value for name, value in values.items() if name in taken}


def _images() -> list[Image]:
    """Two pictures of different sizes and colours."""
    from PIL import Image as pillow

    found = []
    for seed, (width, height) in enumerate(_SIZES):
        colours = random.Random(seed).randbytes(7 * 7 * 3)
        pixels = pillow.frombytes("RGB", (7, 7), colours).resize((width, height), pillow.Resampling.NEAREST)
        file = io.BytesIO()
        pixels.save(file, "PNG")
        found.append(Image(file.getvalue(), width, height))
    return found


def _logprobs(logits_1TV: Tensor) -> Tensor:
    return wide(logits_1TV[0]).log_softmax(-1)
