"""Control of the entropy bonus: how its coefficient changes from update to update.

Torch-free and stateless. The next coefficient is a function of the first one, the present one, the number of updates
and the measured entropy. So a resumed run needs the present coefficient only.
"""

from __future__ import annotations

from dataclasses import dataclass

from heedful.boundary import Count, NotNegative, settings


@dataclass(frozen=True, slots=True)
class ConstantEntropy:
    """The coefficient never changes."""

    def next(self, first: float, present: float, updates: int, entropy: float | None) -> float:
        """The coefficient of update number `updates`, counted from 0. `entropy` was measured in the update before,
        `None` where it was not."""
        return first


@settings
class LinearEntropy:
    """The coefficient moves in equal steps from its first value to `end`, and stays there."""

    end: NotNegative = 0.0
    """The last coefficient."""
    updates: Count = 80
    """Updates until the last coefficient is reached."""

    def next(self, first: float, present: float, updates: int, entropy: float | None) -> float:
        """As `ConstantEntropy.next`."""
        return first + (self.end - first) * min(1.0, updates / self.updates)


@settings
class StepEntropy:
    """The coefficient stays at its first value, and from one update on it is another."""

    end: NotNegative = 0.0
    """The last coefficient."""
    updates: Count = 40
    """Updates with the first coefficient."""

    def next(self, first: float, present: float, updates: int, entropy: float | None) -> float:
        """As `ConstantEntropy.next`."""
        return first if updates < self.updates else self.end


@settings
class EntropyTarget:
    """Holds the entropy per token at a target: the coefficient rises while it is below and falls while it is above.

    next = present + rate (target - entropy), kept within [0, most]: dual ascent on "the entropy is at least the
    target", as the temperature of SAC (Haarnoja et al. 2018, arXiv:1812.05905, section 5).
    """

    nats: NotNegative = 0.3
    """The target: mean exact entropy of the trained tokens."""
    rate: NotNegative = 0.01
    """Added to the coefficient per update, for each nat below the target."""
    most: NotNegative = 0.1
    """The largest coefficient."""

    def next(self, first: float, present: float, updates: int, entropy: float | None) -> float:
        """As `ConstantEntropy.next`."""
        moved = present if entropy is None else present + self.rate * (self.nats - entropy)
        return min(self.most, max(0.0, moved))


EntropyControl = ConstantEntropy | LinearEntropy | StepEntropy | EntropyTarget

ENTROPY_CONTROLS: dict[str, type] = {
    "constant": ConstantEntropy,
    "linear": LinearEntropy,
    "step": StepEntropy,
    "target": EntropyTarget,
}
"""By the name that configurations and the command line use."""
