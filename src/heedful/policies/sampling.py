"""The sampling settings of a policy. Torch-free, so that configurations can include them.

The reported log-probabilities belong to the distribution that was sampled from. There is no top-k and no top-p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from heedful.boundary import COLDEST, HOTTEST, number_of, refuse_below

Noise = Literal["auto", "batch", "conversation"]
Precision = Literal["model", "double"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature and limits of one reply."""

    temperature: float = 1.0
    """Divides the logits. Log-probabilities are reported at the same temperature."""
    greedy: bool = False
    """Take the likeliest token. Log-probabilities are still reported at `temperature`."""
    tokens_per_turn: int = 64
    """Most tokens sampled in one reply."""
    noise: Noise = "auto"
    """batch: one random stream per batch, so a reply depends on the rest of its batch. conversation: one stream per
    turn of a conversation. auto: conversation with --collect async, else batch."""
    precision: Precision = "model"
    """model: the dtype of the weights. double: a copy of the model in float64 samples, and reported numbers are rounded
    to 1e-7. With double, replies do not depend on the batch, to the byte. It is slower, and mps cannot do it."""

    def __post_init__(self) -> None:
        if not COLDEST <= number_of("temperature", self.temperature) <= HOTTEST:
            raise ValueError(
                f"temperature must be between {COLDEST:g} and {HOTTEST:,}, found {self.temperature}; use greedy for "
                "the likeliest token"
            )
        refuse_below(self, tokens_per_turn=1)
        for name, known in (("noise", get_args(Noise)), ("precision", get_args(Precision))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, found {getattr(self, name)!r:.80}")
