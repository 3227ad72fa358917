"""The vision of a seedling: an Idefics3 tower before the Llama, and the processor of its pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessorPil,
    LlamaConfig,
    PreTrainedTokenizerBase,
)

from heedful.models.vision.probe import refuse_unless_exact
from heedful.models.vision.processing import PictureProcessor
from heedful.models.vision.vision import Vision
from heedful.pixels import decoded
from heedful.seedlings.recipe import Seedling
from heedful.seedlings.tokenizer import IMAGE
from heedful.types import Image

MERGED = 2
"""Patches of a side that become one token."""
_DEVIATION = 0.25
"""Of the normalisation. Values of 0 to 1 come to -4 to 4."""


def side_of(images: Sequence[Image], recipe: Seedling) -> int:
    """Pixels of a side of the pictures. Raises ValueError for pictures that the tower cannot cut into tokens."""
    sides = {side for image in images for side in (image.width, image.height)}
    side, token = max(sides), recipe.patch * MERGED
    if len(sides) > 1 or side % token:
        raise ValueError(
            f"Expected square pictures of one size, in cells of {token} pixels (seedling.patch x {MERGED}), found "
            f"sides of {', '.join(map(str, sorted(sides)))}. Set --env.cell {token}, or --seedling.patch."
        )
    return side


def seeing(
    config: LlamaConfig, recipe: Seedling, side: int, tokenizer: PreTrainedTokenizerBase
) -> Idefics3ForConditionalGeneration:
    """The model, with weights from torch's global generator. Pictures are given to it by `give_sight`."""
    text = config.to_dict()
    vision = {
        "hidden_size": recipe.vision_width,
        "intermediate_size": 2 * recipe.vision_width,
        "num_hidden_layers": recipe.vision_layers,
        "num_attention_heads": 2,
        "image_size": side,
        "patch_size": recipe.patch,
        "initializer_range": recipe.init,
    }
    shared: Any = {"pad_token_id": config.pad_token_id, "tie_word_embeddings": config.tie_word_embeddings}
    place = tokenizer.get_vocab()[IMAGE]
    whole = Idefics3Config(text_config=text, vision_config=vision, scale_factor=MERGED, image_token_id=place, **shared)
    model: Idefics3ForConditionalGeneration = Idefics3ForConditionalGeneration(whole)
    model.generation_config.eos_token_id = config.eos_token_id
    model.set_attn_implementation("sdpa")
    return model


def give_sight(
    model: Idefics3ForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, images: Sequence[Image], side: int
) -> Vision:
    """Make the model read pictures such as these. Values are centred on the colour that most of their pixels have.

    With another centre a pale board is a large constant, and the tower learns late.
    """
    colours: Counter[Any] = Counter()
    for image in images:
        colours.update(decoded(image.png).get_flattened_data())
    mean = [value / 255 for value in max(colours, key=lambda colour: (colours[colour], colour))]
    processor = Idefics3ImageProcessorPil(
        size={"longest_edge": side},
        max_image_size={"longest_edge": side},
        do_image_splitting=False,
        image_mean=mean,
        image_std=[_DEVIATION] * 3,
    )
    vision = Vision(model, PictureProcessor(model, tokenizer, processor))
    refuse_unless_exact(model, vision)
    return vision
