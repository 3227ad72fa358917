"""The settings of the diagnostics of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from heedful.boundary import refuse_below
from heedful.diagnostics.alarms.rules import AlarmConfig


@dataclass(frozen=True, slots=True)
class DiagnosticsConfig:
    """How often, and on how many thoughts, the dependence of the reasoning on the input is measured."""

    enabled: bool = True
    share: float | None = 0.05
    """Part of the tokens of training steps that measurements may read. Larger measurements are thinned, in a stated
    order, but not below the size that an interval needs. none = nothing is thinned."""
    every: int = 4
    """Steps between cheap measurements."""
    full_every: int = 20
    """Steps between full measurements (every prompt and every member)."""
    prompts: int = 16
    """Prompts of a cheap measurement."""
    thoughts: int = 2
    """Thoughts per prompt of a cheap measurement."""
    any_turn: int = 32
    """Thoughts of a full measurement whose turn is drawn, at most 64; 0 = none."""
    swapped_rows: int = 16
    """Thoughts of a full measurement that are read under swapped observations, at most 32; 0 = none."""
    swapped_columns: int = 8
    """Observations that are swapped among them, at most 16."""
    grounding_rows: int = 16
    """Thoughts of a full measurement that are exchanged between prompts, to see what their actions follow; at most 128,
    0 = none."""
    grounding_columns: int = 8
    """Prompts whose thoughts are exchanged, at most 32."""
    replays: int = 4
    """Replays of every episode of a full measurement under fresh noise, to see how much of the variance of rewards is
    luck. Only where the environment says that it is noisy; 0 = none."""
    image: bool = True
    """Exchange pictures between prompts in a full measurement, and their texts. Only where prompts hold pictures."""
    image_rows: int = 16
    """Thoughts of first turns that are read with the pictures, and with the texts, of others, and as many of a later
    turn; at most 32."""
    image_columns: int = 8
    """Prompts whose pictures and texts are exchanged, at most 16."""
    words: int = 64
    """Thoughts of a full measurement that are stored token by token, with what each token tells of the prompt; at most
    64, 0 = none."""
    judge: str | None = None
    """Another causal model (a folder, smollm2, a .gguf file or a Hugging Face name) that reads prompts and thoughts as
    text at full measurements; none = only the policy judges itself."""
    max_tokens: int = 4096
    """Most padded tokens scored in one forward pass."""
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    """When a change of what is measured is an alarm."""

    def __post_init__(self) -> None:
        refuse_below(self, every=1, full_every=1, prompts=1, thoughts=1, max_tokens=1)
        refuse_below(self, any_turn=0, swapped_rows=0, swapped_columns=2, words=0)
        refuse_below(self, grounding_rows=0, grounding_columns=2, image_rows=2, image_columns=2, replays=0)
        if self.replays == 1:
            raise ValueError("replays must be 0 or at least 2: a single replay has no variance")
        if self.share is not None and not 0 < self.share < math.inf:
            raise ValueError(
                "share must be above 0, the part of the tokens of training steps that measurements may read, or none "
                f"for no limit, found {self.share}"
            )
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most}, found {getattr(self, name)}")


MOST = {
    "any_turn": 64,
    "swapped_rows": 32,
    "swapped_columns": 16,
    "grounding_rows": 128,
    "grounding_columns": 32,
    "image_rows": 32,
    "image_columns": 16,
    "words": 64,
}
"""Upper ends of the settings: beyond them a full measurement would take most of a run's time."""
