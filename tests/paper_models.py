"""Random models of the architectures in the paper's table: two layers, 32 wide, with a small tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from heedful.models.vision import vision_of
from heedful.run.presets import SHAPES
from seeing_models import TEXT, seeing, tokenizer

LEAN = (
    "--steps 1 --groups 2 --group-size 4 --algorithm.minibatches 2 --sampling.tokens-per-turn 8 --evaluation.times 0 "
    "--diagnostics.no-enabled --device cpu --dtype float32"
)
"""What turns a preset of the table into one step of seconds."""


def two_layers(name: str, folder: Path) -> Path:
    """A model folder of the architecture that `name` has, in float32."""
    torch.manual_seed(0)
    words = tokenizer(4096)
    if "VL" in name:
        model, words = seeing("qwen2_5_vl")
        vision = vision_of(model)
        assert vision is not None
        vision.processor.processor.save_pretrained(folder)
    else:
        ids = {"vocab_size": len(words), "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
        sizes = {**SHAPES[name], **TEXT, **ids, "bos_token_id": None, "max_position_embeddings": 4096}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**sizes))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
