"""The recipes of what is learned from demonstrations: a seedling, and a loaded model's warm start. Torch-free.

The cache key is a hash of every field, so equal recipes name equal seedlings.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from heedful.boundary import MOST_EPISODES, refuse_above, refuse_below
from heedful.boundary.limits import MOST_TOKENS, whole_number
from heedful.storage.measurements import MOST_STEP
from heedful.training.lora_config import LoraConfig
from heedful.training.optimizer_config import LARGEST_LR

FORMAT = 1
"""Version of the growing code. It increases when the weights of a recipe change."""

_VISION_HEADS = 2

_MOST_LAYERS = 1_000
"""As in folders of loaded models. Each layer is built before the first step."""

_WIDEST, MOST_ENTRIES = 100_000, 1_000_000
"""Of a layer and of a vocabulary: above those of every model that is known."""

LEAST_VOCABULARY = 265
"""256 bytes, 5 tokens of the chat template and 4 tags. A tokenizer needs them to write every text."""


@dataclass(frozen=True, slots=True)
class Seedling:
    """Architecture and warm start of a built-in small model (Llama shape, trained from scratch).

    One that sees has the shape of Idefics3: a vision tower before the same Llama. A picture takes one token for every
    two patches in both directions.
    """

    hidden: int = 128
    """Width of the residual stream."""
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    """Key-value heads."""
    ffn: int = 384
    """Width of the feed-forward layers."""
    vocabulary: int = 512
    """Maximum number of entries of the tokenizer, which is learned from the demonstrations."""
    context: int = 1024
    """Maximum sequence length in tokens."""
    init: float = 0.02
    """Standard deviation of the initial weights."""
    steps: int = 300
    """Optimiser steps of the warm start."""
    episodes: int = 32
    """Demonstrated episodes per step."""
    lr: float = 2e-3
    """Peak learning rate, with cosine decay to a tenth."""
    imperfect: float = 0.3
    """Share of demonstrated turns that follow a random plan, so that reinforcement learning can improve."""
    template: float = 0.0
    """Share of demonstrated thoughts that are fluent but do not depend on the state."""
    vision_width: int = 0
    """Width of the vision tower. 0 = the seedling reads text alone. 48 is enough for small boards."""
    vision_layers: int = 2
    """Layers of the vision tower."""
    patch: int = 4
    """Pixels of a side of one patch. Cells of two patches a side (--env.cell 8) are one token each."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "heads", "kv_heads", "ffn", "context", "episodes", "vision_layers", "patch"):
            if whole_number(name, getattr(self, name)) < 1:
                raise ValueError(f"{name} must be 1 or more, found {getattr(self, name)}")
        if self.hidden % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"hidden ({self.hidden}) must be a multiple of heads ({self.heads}), "
                f"and heads a multiple of kv_heads ({self.kv_heads})"
            )
        if self.vision_width < 0 or self.vision_width % _VISION_HEADS:
            raise ValueError(f"vision_width must be 0 or a multiple of {_VISION_HEADS}, found {self.vision_width}")
        if self.vocabulary < LEAST_VOCABULARY:
            raise ValueError(
                f"vocabulary must hold at least every byte, the chat template's tokens and the tags, "
                f"{LEAST_VOCABULARY} entries in all, found {self.vocabulary}"
            )
        refuse_above(self, layers=_MOST_LAYERS, vision_layers=_MOST_LAYERS, patch=_WIDEST)
        refuse_above(self, hidden=_WIDEST, ffn=_WIDEST, vision_width=_WIDEST, vocabulary=MOST_ENTRIES)
        whole_number("seed", self.seed)
        refuse_above(self, context=MOST_TOKENS, episodes=MOST_EPISODES, steps=MOST_STEP)
        refuse_below(self, steps=0)
        if not 0 < self.init <= 1:
            raise ValueError(f"init must be a number above 0 and at most 1, found {self.init}")
        if not 0 < self.lr <= LARGEST_LR:
            raise ValueError(f"lr must be a number above 0 and at most {LARGEST_LR:g}, found {self.lr}")
        for name in ("imperfect", "template"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], found {getattr(self, name)}")

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


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Learning from demonstrations before training, for a loaded model."""

    steps: int = 0
    """Optimiser steps. 0 = no warm start: the model is trained as it is loaded."""
    episodes: int = 16
    """Demonstrated episodes per step."""
    lr: float = 2e-4
    """Peak learning rate, with cosine decay to a tenth."""
    imperfect: float = 0.2
    """Share of demonstrated turns that follow a random plan, so that reinforcement learning can improve."""
    template: float = 0.0
    """Share of demonstrated thoughts that are fluent but do not depend on the state."""
    micro_batch_tokens: int = 2048
    """Most padded tokens in one forward and backward pass."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type in which matrices are multiplied. Weights are float32. auto = bfloat16 where it is faster."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """LoRA of the warm start. Its additions are merged into the weights when it is done."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("steps", 0), ("episodes", 1), ("micro_batch_tokens", 1)):
            if whole_number(f"warm_start.{name}", getattr(self, name)) < least:
                raise ValueError(f"warm_start.{name} must be {least} or more, found {getattr(self, name)}")
        whole_number("warm_start.seed", self.seed)
        refuse_above(self, steps=MOST_STEP, episodes=MOST_EPISODES)
        if not 0 < self.lr <= LARGEST_LR:
            raise ValueError(f"warm_start.lr must be a number above 0 and at most {LARGEST_LR:g}, found {self.lr}")
        for name in ("imperfect", "template"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"warm_start.{name} must lie in [0, 1], found {getattr(self, name)}")


def nano() -> Seedling:
    """The smallest useful seedling, for Echo, Bandit and the tests. It grows in seconds."""
    return replace(Seedling(), hidden=64, layers=2, heads=2, kv_heads=1, ffn=192, steps=300, lr=4e-3)
