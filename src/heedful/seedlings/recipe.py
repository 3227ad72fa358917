"""The recipes of what is learned from demonstrations: a seedling, and a loaded model's warm start. Torch-free.

The cache key is a hash of every field, so equal recipes name equal seedlings.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, field, replace
from typing import Annotated, Literal

from annotated_types import Interval

from heedful.boundary import Count, LearningRate, Natural, PositiveShare, Share, settings
from heedful.training.settings import LoraConfig

FORMAT = 1
"""Version of the growing code. It increases when the weights of a recipe change."""

_VISION_HEADS = 2

LEAST_VOCABULARY = 265
"""256 bytes, 5 tokens of the chat template and 4 tags. A tokenizer needs them to write every text."""


@settings
class Seedling:
    """Architecture and warm start of a built-in small model (Llama shape, trained from scratch).

    One that sees has the shape of Idefics3: a vision tower before the same Llama. A picture takes one token for every
    two patches in both directions.
    """

    hidden: Count = 128
    """Width of the residual stream."""
    layers: Count = 4
    heads: Count = 4
    kv_heads: Count = 2
    """Key-value heads."""
    ffn: Count = 384
    """Width of the feed-forward layers."""
    vocabulary: Annotated[int, Interval(ge=LEAST_VOCABULARY)] = 512
    """Maximum number of entries of the tokenizer, which is learned from the demonstrations."""
    context: Count = 1024
    """Maximum sequence length in tokens."""
    init: PositiveShare = 0.02
    """Standard deviation of the initial weights."""
    steps: Natural = 300
    """Optimiser steps of the warm start."""
    episodes: Count = 32
    """Demonstrated episodes per step."""
    lr: LearningRate = 2e-3
    """Peak learning rate, with cosine decay to a tenth."""
    imperfect: Share = 0.3
    """Share of demonstrated turns that follow a random plan, so that reinforcement learning can improve."""
    template: Share = 0.0
    """Share of demonstrated thoughts that are fluent but do not depend on the state."""
    vision_width: Natural = 0
    """Width of the vision tower. 0 = the seedling reads text alone. 48 is enough for small boards."""
    vision_layers: Count = 2
    """Layers of the vision tower."""
    patch: Count = 4
    """Pixels of a side of one patch. Cells of two patches a side (--env.cell 8) are one token each."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.hidden % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"hidden ({self.hidden}) must be a multiple of heads ({self.heads}), "
                f"and heads a multiple of kv_heads ({self.kv_heads})"
            )
        if self.vision_width % _VISION_HEADS:
            raise ValueError(f"vision_width must be 0 or a multiple of {_VISION_HEADS}, found {self.vision_width}")

    def key(self, environment: object, versions: str) -> str:
        """Cache key: this recipe, the environment's knobs (a JSON tree), library versions."""
        recipe = asdict(self)
        if not self.vision_width:  # recipes of text keep the names that they had before there was vision
            for name in ("vision_width", "vision_layers", "patch"):
                del recipe[name]
        return key_of({"format": FORMAT, "recipe": recipe, "environment": environment, "versions": versions})


def key_of(tree: object) -> str:
    """The name in the cache of what is made from a JSON tree."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


@settings
class WarmStart:
    """Learning from demonstrations before training, for a loaded model."""

    steps: Natural = 0
    """Optimiser steps. 0 = no warm start: the model is trained as it is loaded."""
    episodes: Count = 16
    """Demonstrated episodes per step."""
    lr: LearningRate = 2e-4
    """Peak learning rate, with cosine decay to a tenth."""
    imperfect: Share = 0.2
    """Share of demonstrated turns that follow a random plan, so that reinforcement learning can improve."""
    template: Share = 0.0
    """Share of demonstrated thoughts that are fluent but do not depend on the state."""
    micro_batch_tokens: Count = 2048
    """Most padded tokens in one forward and backward pass."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type in which matrices are multiplied. Weights are float32. auto = bfloat16 where it is faster."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """LoRA of the warm start. Its additions are merged into the weights when it is done."""
    seed: int = 0


def nano() -> Seedling:
    """The smallest useful seedling, for Echo, Bandit and the tests. It grows in seconds."""
    return replace(Seedling(), hidden=64, layers=2, heads=2, kv_heads=1, ffn=192, steps=300, lr=4e-3)
