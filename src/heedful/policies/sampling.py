"""How a policy samples. Torch-free, so that configurations can hold it.

Promise: log-probabilities are always those of the distribution that was sampled from - no top-k, no top-p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature and limits of one reply."""

    temperature: float = 1.0
    """Divides the logits; log-probabilities are reported under the same temperature."""
    greedy: bool = False
    """Take the likeliest token; log-probabilities are still reported under `temperature`."""
    tokens_per_turn: int = 64
    """Most tokens sampled in one reply."""
    noise: Literal["auto", "batch", "conversation"] = "auto"
    """batch: one stream for all that are asked together, so that a reply depends on who else is; conversation: one for
    each turn of each conversation; auto: conversation with --collect async, else batch."""
    precision: Literal["model", "double"] = "model"
    """model: in the dtype of the weights; double: by a copy of the model in float64, and what is reported is rounded to
    1e-7. Replies then do not depend on who is sampled beside whom, to the byte; takes longer, not for every device."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(
                f"temperature must be above 0, found {self.temperature}; use greedy for the likeliest token"
            )
        if self.tokens_per_turn < 1:
            raise ValueError(f"tokens_per_turn must be at least 1, found {self.tokens_per_turn}")
