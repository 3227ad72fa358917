"""The settings of the diagnostics of a run."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Annotated

from annotated_types import Interval

from heedful.boundary import Count, Natural, settings
from heedful.diagnostics.alarms.rules import AlarmConfig


@settings
class DiagnosticsConfig:
    """How often, and on how many thoughts, the dependence of the reasoning on the input is measured."""

    enabled: bool = True
    share: Annotated[float, Interval(gt=0, lt=math.inf)] | None = 0.05
    """Part of the tokens of training steps that measurements may read. Larger measurements are thinned, in a stated
    order, but not below the size that an interval needs. none = nothing is thinned."""
    every: Count = 4
    """Steps between cheap measurements."""
    full_every: Natural = 20
    """Steps between full measurements (every prompt and every member). 0 = none."""
    prompts: Count = 16
    """Prompts of a cheap measurement."""
    thoughts: Count = 2
    """Thoughts per prompt of a cheap measurement."""
    any_turn: Annotated[int, Interval(ge=0, le=64)] = 32
    """Thoughts of a full measurement whose turn is drawn, at most 64; 0 = none."""
    swapped_rows: Annotated[int, Interval(ge=0, le=32)] = 16
    """Thoughts of a full measurement that are read under swapped observations, at most 32; 0 = none."""
    swapped_columns: Annotated[int, Interval(ge=2, le=16)] = 8
    """Observations that are swapped among them, at most 16."""
    grounding_rows: Annotated[int, Interval(ge=0, le=128)] = 32
    """Thoughts of a full measurement that are exchanged between prompts, to see what their actions follow; at most 128,
    0 = none. Each is read under its own prompt and three others."""
    grounding_columns: Annotated[int, Interval(ge=2, le=32)] = 16
    """Prompts whose thoughts are exchanged, at most 32."""
    later_rows: Annotated[int, Interval(ge=0, le=32)] = 8
    """Tasks of a full measurement of which a later turn is exchanged: its history, its last observation and its
    thought, to see what makes its first action right; at most 32, 0 = none. Only where right actions are known."""
    replays: Natural = 4
    """Replays of every episode of a full measurement under fresh noise, to see how much of the variance of rewards is
    luck. Only where the environment says that it is noisy; 0 = none."""
    image: bool = True
    """Exchange pictures between prompts in a full measurement, and their texts. Only where prompts hold pictures."""
    image_rows: Annotated[int, Interval(ge=2, le=32)] = 16
    """Thoughts of first turns that are read with the pictures, and with the texts, of others, and as many of a later
    turn; at most 32."""
    image_columns: Annotated[int, Interval(ge=2, le=16)] = 8
    """Prompts whose pictures and texts are exchanged, at most 16."""
    words: Annotated[int, Interval(ge=0, le=64)] = 64
    """Thoughts of a full measurement that are stored token by token, with what each token tells of the prompt; at most
    64, 0 = none."""
    judge: str | None = None
    """Another causal model (a folder, smollm2 or a Hugging Face name) that reads prompts and thoughts as text at full
    measurements; none = only the policy judges itself."""
    max_tokens: Count = 4096
    """Most padded tokens scored in one forward pass. As many tokens of prompts are kept for the next parts of a
    measurement."""
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    """When a change of what is measured is an alarm."""

    def full_is_due(self, step: int) -> bool:
        """Whether a full measurement falls on this step."""
        return self.full_every > 0 and step % self.full_every == 0

    def __post_init__(self) -> None:
        if self.replays == 1:
            raise ValueError("replays must be 0 or at least 2: a single replay has no variance")
