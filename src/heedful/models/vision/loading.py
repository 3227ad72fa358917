"""Model folders with vision: which they are, their processor of pictures, and its files in a saved folder."""

from __future__ import annotations

import reprlib
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

MOST_SIDE = 4096
"""Pixels of a side to which a processor may resize a picture. Sizes of areas are bounded by its square."""
MOST_TILES = 1024
"""Parts into which a processor may cut a picture."""
MOST_PATCHES = 2**17
"""Patches of one picture."""
_SIZES = ("size", "max_image_size", "crop_size", "pad_size", "min_pixels", "max_pixels", "tile_size")
_TILES = ("patches", "tiles", "crops", "slice_nums", "num_chunks")
"""Words in the names of settings that count parts of a picture. Some processors try every pair of counts."""

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
    _resize(processor, config)
    refuse_endless_pictures(processor)
    vision = Vision(model, PictureProcessor(model, tokenizer, processor))
    refuse_unless_exact(model, vision)
    vision.freeze(config.tower == "frozen")
    vision.source = source
    return vision


def _resize(processor: Any, config: VisionConfig) -> None:
    """Set the bounds of a picture's pixels."""
    asked = {"shortest_edge": config.least_pixels, "longest_edge": config.most_pixels}
    asked = {name: pixels for name, pixels in asked.items() if pixels}
    if not asked:
        return
    if not hasattr(processor, "merge_size"):
        raise ValueError(
            f"its pictures have a size of their own ({type(processor).__name__}); leave vision.least_pixels and "
            "vision.most_pixels at 0"
        )
    processor.size = type(processor.size)(**{**dict(processor.size), **asked})


def refuse_endless_pictures(processor: Any) -> None:
    """Raise ValueError for settings under which one picture would take gigabytes of memory, or no end of time."""
    settings = processor.to_dict()
    areas = hasattr(processor, "merge_size") or "min_pixels" in settings
    most = MOST_SIDE**2 if areas else MOST_SIDE
    for name, value in settings.items():
        numbers = [each for each in (value.values() if isinstance(value, dict) else [value]) if _is_number(each)]
        if name in _SIZES and not all(0 < each <= most for each in numbers):
            raise ValueError(f"its processor names a {name} of {_brief(value)}, expected at most {most:,}")
        if any(word in name for word in _TILES) and not all(0 <= each <= MOST_TILES for each in numbers):
            raise ValueError(f"its processor names {_brief(value)} parts ({name}), expected {MOST_TILES:,} at most")
    patch = settings.get("patch_size")
    if areas and _is_number(patch) and _largest(settings.get("size")) > MOST_PATCHES * patch**2:
        raise ValueError(
            f"its processor cuts a picture into more than {MOST_PATCHES:,} patches of {patch} pixels a side"
        )
    tile = _largest(settings.get("max_image_size"))
    if tile and settings.get("do_image_splitting") and (_largest(settings.get("size")) / tile) ** 2 > MOST_TILES:
        raise ValueError(f"its processor cuts a picture into more than {MOST_TILES:,} parts of {tile:g} pixels a side")


def _largest(sizes: Any) -> float:
    """The largest number in a setting such as `{"longest_edge": 364}`. 0 without one."""
    return max((each for each in sizes.values() if _is_number(each)), default=0) if isinstance(sizes, dict) else 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _brief(value: object) -> str:
    return reprlib.repr(value)[:80]


def write_processor(folder: Path, model: object) -> None:
    """The files of the processor in a saved model folder: those of the folder that it came from, or its settings."""
    vision = vision_of(model) or vision_of(getattr(model, "model", None))  # or of what writes it
    if vision is None:
        return
    for name in FILES:
        found = None if vision.source is None else _file(vision.source, name)
        if found is not None:
            shutil.copyfile(found, folder / name)
    # Written last, since the settings in use may differ from those of the folder.
    vision.processor.processor.save_pretrained(folder)


def _file(source: str | Path, name: str) -> str | None:
    try:
        return cached_file(str(source), name, local_files_only=True, _raise_exceptions_for_missing_entries=False)
    except OSError:
        return None
