"""Signal and noise of the gradient, prompt by prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.training.gradients.meter import GradientMeasurement, GradientMeter

__all__ = ["GradientMeasurement", "GradientMeter"]

__getattr__ = lazily(
    __name__,
    {
        "GradientMeasurement": "heedful.training.gradients.meter",
        "GradientMeter": "heedful.training.gradients.meter",
    },
)
