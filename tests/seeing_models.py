"""Small models that see, with random weights: one of each family, with its processor of pictures and a tokenizer."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
import transformers
from PIL import Image as pillow
from tokenizers import AddedToken
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.models.vision.processing import PictureProcessor
from heedful.models.vision.vision import Vision
from heedful.seedlings.tokenizer import grow_tokenizer
from heedful.types import Image

WORDS = ["Left Right Up Down", "<think> so </think>", "the goal is at row 3", "plan Left Left Down"]
SPECIAL = [
    *("<image>", "<fake_token_around_image>", "<global-img>", "<img>", "</img>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{% if message['role'] == 'assistant' %}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,
}
QWEN_ROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}


def tokenizer(context: int = 1024) -> PreTrainedTokenizerBase:
    made = grow_tokenizer(WORDS, 360, context, ["<think>", "</think>", "<answer>", "</answer>"])
    made.add_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL], special_tokens=True)
    made.chat_template = TEMPLATE
    return made


def picture(seed: int = 0, width: int = 56, height: int = 56) -> Image:
    """Random blocks of colour."""
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (height // 7, width // 7, 3), generator=generator, dtype=torch.uint8)
    pixels = pillow.frombytes("RGB", (width // 7, height // 7), bytes(blocks.flatten().tolist()))
    file = io.BytesIO()
    pixels.resize((width, height), pillow.Resampling.NEAREST).save(file, "PNG")
    return Image(file.getvalue(), width, height, alt=f"blocks {seed}")


def seeing(family: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Any, PreTrainedTokenizerBase]:
    """A model of this family with vision, and its tokenizer."""
    made = tokenizer()
    if family.startswith("qwen"):
        made.chat_template = TEMPLATE.replace("<image>", "<img><image></img>")  # their templates write both ends
    ids = made.get_vocab()
    common = {"image_token_id": ids["<image>"], "pad_token_id": ids["<|pad|>"], "eos_token_id": ids["<|end|>"]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, processor = FAMILIES[family](len(made), common)
    model = model.to(dtype).eval()
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise AssertionError(f"{family}: {name} was never initialised")
    Vision(model, PictureProcessor(model, made, processor))
    return model, made


def _qwen(kind: str, patch: int, text: dict[str, Any], vision: dict[str, Any]) -> Callable[..., Any]:
    def make(vocabulary: int, common: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
        config = getattr(transformers, f"{kind}Config")(
            text_config={**TEXT, **text, "vocab_size": vocabulary, "rope_parameters": QWEN_ROPE},
            vision_config={"patch_size": patch, "spatial_merge_size": 2, "temporal_patch_size": 2, **vision},
            video_token_id=vocabulary - 1,
            vision_start_token_id=vocabulary - 2,
            vision_end_token_id=vocabulary - 3,
            **common,
        )
        model = getattr(transformers, f"{kind}ForConditionalGeneration")._from_config(
            config, attn_implementation="sdpa"
        )
        processor = transformers.Qwen2VLImageProcessorPil(
            patch_size=patch, merge_size=2, size={"shortest_edge": patch * patch * 4, "longest_edge": 200_000}
        )
        return model, processor

    return make


def _idefics(kind: str, split: bool = False) -> Callable[..., Any]:
    def make(vocabulary: int, common: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
        vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = getattr(transformers, f"{kind}Config")(
            text_config={"model_type": "llama", **TEXT, "vocab_size": vocabulary},
            vision_config={**vision, "image_size": 56, "patch_size": 7, "initializer_range": 0.3},
            scale_factor=2,
            **common,
        )
        model = getattr(transformers, f"{kind}ForConditionalGeneration")._from_config(
            config, attn_implementation="sdpa"
        )
        processor = getattr(transformers, f"{kind}ImageProcessorPil")(
            size={"longest_edge": 112 if split else 56}, max_image_size={"longest_edge": 56}, do_image_splitting=split
        )
        return model, processor

    return make


def _internvl(vocabulary: int, common: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
    config = transformers.InternVLConfig(
        text_config={"model_type": "qwen2", **TEXT, "vocab_size": vocabulary},
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": [56, 56],
            "patch_size": [7, 7],
            "initializer_range": 0.3,
        },
        downsample_ratio=0.5,
        **common,
    )
    model = transformers.InternVLForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    processor = transformers.GotOcr2ImageProcessorPil(size={"height": 56, "width": 56}, crop_to_patches=False)
    return model, processor


def _llava(vocabulary: int, common: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
    config = transformers.LlavaConfig(
        text_config={"model_type": "llama", **TEXT, "vocab_size": vocabulary},
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 56,
            "patch_size": 7,
            "projection_dim": 32,
        },
        **common,
    )
    model = transformers.LlavaForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    processor = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, do_center_crop=True
    )
    return model, processor


_QWEN2 = {"embed_dim": 32, "hidden_size": 32, "depth": 2, "num_heads": 2, "mlp_ratio": 2}
_QWEN25 = {
    "hidden_size": 32,
    "out_hidden_size": 32,
    "intermediate_size": 48,
    "depth": 2,
    "num_heads": 2,
    "window_size": 56,
    "fullatt_block_indexes": [1],
}
_QWEN3 = {
    "hidden_size": 32,
    "out_hidden_size": 32,
    "intermediate_size": 48,
    "depth": 3,
    "num_heads": 2,
    "deepstack_visual_indexes": [0, 1],
    "num_position_embeddings": 16,
}
FAMILIES: dict[str, Callable[..., Any]] = {
    "qwen2_vl": _qwen("Qwen2VL", 14, {}, _QWEN2),
    "qwen2_5_vl": _qwen("Qwen2_5_VL", 14, {}, _QWEN25),
    "qwen3_vl": _qwen("Qwen3VL", 16, {"head_dim": 8}, _QWEN3),
    "idefics3": _idefics("Idefics3"),
    "idefics3_tiles": _idefics("Idefics3", split=True),
    "smolvlm": _idefics("SmolVLM"),
    "internvl": _internvl,
    "llava": _llava,
}
