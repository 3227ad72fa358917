"""The sampling settings of a policy. Torch-free, so that configurations can include them.

The reported log-probabilities belong to the distribution that was sampled from. There is no top-k and no top-p.
"""

from __future__ import annotations

from typing import Literal

from heedful.boundary import Count, Temperature, settings

Noise = Literal["auto", "batch", "conversation"]
Precision = Literal["model", "double"]


@settings
class Sampling:
    """Temperature and limits of one reply."""

    temperature: Temperature = 1.0
    """Divides the logits. Log-probabilities are reported at the same temperature."""
    greedy: bool = False
    """Take the likeliest token. Log-probabilities are still reported at `temperature`."""
    tokens_per_turn: Count = 64
    """Most tokens sampled in one reply."""
    noise: Noise = "auto"
    """batch: one random stream per batch, so a reply depends on the rest of its batch. conversation: one stream per
    turn of a conversation. auto: conversation with --collect async, else batch."""
    precision: Precision = "model"
    """model: the dtype of the weights. double: a copy of the model in float64 samples, and reported numbers are rounded
    to 1e-7. With double, replies do not depend on the batch, to the byte. It is slower, and mps cannot do it."""
