"""Control of the entropy bonus: how its coefficient changes from update to update.

Torch-free and stateless. The next coefficient is a function of the first one, the present one, the number of updates
and the measured entropy. So a resumed run needs the present coefficient only.
"""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_COEFFICIENT = 1e6
"""Of a term of the loss. More is a slip, and float32 overflows at 3e38."""


@dataclass(frozen=True, slots=True)
class ConstantEntropy:
    """The coefficient never changes."""

    def next(self, first: float, present: float, updates: int, entropy: float) -> float:
        """The coefficient of update number `updates`, counted from 0. `entropy` was measured in the update before."""
        return first


@dataclass(frozen=True, slots=True)
class LinearEntropy:
    """The coefficient moves in equal steps from its first value to `end`, and stays there."""

    end: float = 0.0
    """The last coefficient."""
    updates: int = 80
    """Updates until the last coefficient is reached."""

    def __post_init__(self) -> None:
        _check("end", self.end)
        if self.updates < 1:
            raise ValueError(f"Expected the entropy schedule to take at least 1 update, found updates={self.updates}.")

    def next(self, first: float, present: float, updates: int, entropy: float) -> float:
        """As `ConstantEntropy.next`."""
        return first + (self.end - first) * min(1.0, updates / self.updates)


@dataclass(frozen=True, slots=True)
class EntropyTarget:
    """Holds the entropy per token at a target: the coefficient rises while it is below and falls while it is above.

    next = present + rate (target - entropy), kept within [0, most]: dual ascent on "the entropy is at least the
    target", as the temperature of SAC (Haarnoja et al. 2018, arXiv:1812.05905, section 5).
    """

    nats: float = 0.3
    """The target: mean exact entropy of the trained tokens."""
    rate: float = 0.01
    """Added to the coefficient per update, for each nat below the target."""
    most: float = 0.1
    """The largest coefficient."""

    def __post_init__(self) -> None:
        for name, value in (("nats", self.nats), ("rate", self.rate), ("most", self.most)):
            _check(name, value)

    def next(self, first: float, present: float, updates: int, entropy: float) -> float:
        """As `ConstantEntropy.next`."""
        return min(self.most, max(0.0, present + self.rate * (self.nats - entropy)))


EntropyControl = ConstantEntropy | LinearEntropy | EntropyTarget

ENTROPY_CONTROLS: dict[str, type] = {"constant": ConstantEntropy, "linear": LinearEntropy, "target": EntropyTarget}
"""By the name that configurations and the command line use."""


def _check(name: str, value: float) -> None:
    if not 0 <= value <= LARGEST_COEFFICIENT:
        raise ValueError(f"Expected the entropy control's {name} between 0 and {LARGEST_COEFFICIENT:g}, found {value}.")
