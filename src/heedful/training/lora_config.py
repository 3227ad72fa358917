"""LoRA's knobs. Torch-free, so that a command line can be built from them in milliseconds."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from heedful.boundary import Text, settings

LARGEST_RANK = 100_000
"""Above the width of every layer, where an addition is no longer of low rank."""


@settings
class LoraConfig:
    """Train low-rank additions to the weights instead of the weights (Hu et al. 2021, arXiv:2106.09685). Needs peft.

    There is no dropout: the policy that learns must be the policy that sampled.
    """

    rank: Annotated[int, Interval(ge=0, le=LARGEST_RANK)] = 0
    """Rank of the additions. 0 = train the weights themselves."""
    alpha: Annotated[int, Interval(ge=1, le=LARGEST_RANK)] | None = None
    """The addition is multiplied by alpha / rank. none = twice the rank."""
    targets: tuple[Text, ...] = ("all-linear",)
    """Layers that get an addition: all-linear (every linear layer except the output head), or the ends of their names,
    for instance q_proj v_proj."""

    def __post_init__(self) -> None:
        if not self.targets:
            raise ValueError("Expected lora.targets to name at least one layer, or all-linear; found none.")

    @property
    def scaled_by(self) -> int:
        """alpha, resolved."""
        return 2 * self.rank if self.alpha is None else self.alpha
