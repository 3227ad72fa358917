"""LoRA's knobs. Torch-free, so that a command line can be built from them in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from heedful.boundary.limits import whole_number

LARGEST_RANK = 100_000
"""Above the width of every layer, where an addition is no longer of low rank."""


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """Train low-rank additions to the weights instead of the weights (Hu et al. 2021, arXiv:2106.09685). Needs peft.

    There is no dropout: the policy that learns must be the policy that sampled.
    """

    rank: int = 0
    """Rank of the additions. 0 = train the weights themselves."""
    alpha: int | None = None
    """The addition is multiplied by alpha / rank. none = twice the rank."""
    targets: tuple[str, ...] = ("all-linear",)
    """Layers that get an addition: all-linear (every linear layer except the output head), or the ends of their names,
    for instance q_proj v_proj."""

    def __post_init__(self) -> None:
        if not 0 <= whole_number("lora.rank", self.rank) <= LARGEST_RANK:
            raise ValueError(f"Expected lora.rank between 0 (no LoRA) and {LARGEST_RANK:,}, found {self.rank}.")
        if self.alpha is not None and not 0 < whole_number("lora.alpha", self.alpha) <= LARGEST_RANK:
            raise ValueError(
                f"Expected lora.alpha above 0 and at most {LARGEST_RANK:,} (none = twice the rank), found {self.alpha}."
            )
        if not self.targets or not all(target.strip() for target in self.targets):
            raise ValueError("Expected lora.targets to name at least one layer, or all-linear; found none.")

    @property
    def scaled_by(self) -> int:
        """alpha, resolved."""
        return 2 * self.rank if self.alpha is None else self.alpha
