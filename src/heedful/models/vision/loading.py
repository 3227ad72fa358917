"""Model folders with vision: which they are, their processor of pictures, and its files in a saved folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoImageProcessor, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
)
from transformers.utils.hub import cached_file

from heedful.models.sight import VisionConfig
from heedful.models.vision.probe import refuse_unless_exact
from heedful.models.vision.processing import PictureProcessor
from heedful.models.vision.vision import Vision, vision_of

FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")


def sees(source: str | Path, trusted: bool) -> bool:
    """Whether transformers reads the folder as a model of pictures and text, and as nothing else."""
    config = AutoConfig.from_pretrained(source, trust_remote_code=trusted)
    return type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING


def give_vision(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str | Path,
    trusted: bool,
    config: VisionConfig,
) -> Vision:
    """Make a loaded model read rows of ids with pictures, after a probe.

    Raises OSError without a processor, and ValueError for a model that is not read exactly.
    """
    processor: Any = AutoImageProcessor.from_pretrained(source, trust_remote_code=trusted)
    asked = {"shortest_edge": config.least_pixels, "longest_edge": config.most_pixels}
    asked = {name: pixels for name, pixels in asked.items() if pixels}
    if asked and not hasattr(processor, "merge_size"):
        raise ValueError(
            f"its pictures have a size of their own ({type(processor).__name__}); leave vision.least_pixels and "
            "vision.most_pixels at 0"
        )
    if asked:
        processor.size = type(processor.size)(**{**dict(processor.size), **asked})
    vision = Vision(model, PictureProcessor(model, tokenizer, processor))
    refuse_unless_exact(model, vision)
    vision.freeze(config.tower == "frozen")
    vision.source = source
    return vision


def write_processor(folder: Path, model: object) -> None:
    """The files of the processor in a saved model folder: those of the folder that it came from, or its settings."""
    vision = vision_of(model) or vision_of(getattr(model, "model", None))  # or of what writes it
    if vision is None:
        return
    for name in FILES:
        try:
            found = cached_file(str(vision.source), name, local_files_only=True) if vision.source else None
        except OSError:  # not every folder has every file
            continue
        if found is not None:
            shutil.copyfile(found, folder / name)
    # Written last, since the settings in use may differ from those of the folder.
    vision.processor.processor.save_pretrained(folder)
