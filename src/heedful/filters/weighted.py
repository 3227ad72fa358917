"""Weights instead of a cut: every group that varies stays, weighted by its spread.

The weights of the kept groups average 1, and no group that varies gets a weight of 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.diagnostics.statistics.group_statistics import LARGEST
from heedful.filters.ranked import Ranked
from heedful.filters.ranking import check_on, positive
from heedful.types import Verdict

LEAST = 1e-12
"""Relative to the largest weight. Without it a high power of a small variance would underflow to 0, which means
dropped."""


@dataclass(frozen=True, slots=True)
class SoftWeight(Ranked):
    """Every group that is not constant, weighted by its variance to a power. The weights average 1.

    A cut treats the last group kept like the first, and ignores the next one. Here there is no such edge. `power` 0 is
    `DropConstant`. Power .5 weighs by the standard deviation: with standardized advantages this gives the undivided
    advantage, times a constant of the step. Large powers keep only the groups of largest variance.

    In the loss a weight v multiplies all terms of a group's tokens, regularisers included, and is in the denominator as
    well. `token`: sum(v l) / sum(v n), a group counts by v times its tokens. `sequence` and `fixed`:
    sum(v mean(l)) / sum(v), a group counts by v times its trajectories. So only ratios of weights matter. The average
    of 1 makes them easy to read.
    """

    power: float = 1.0
    """Exponent of the variance, at least 0: 1 = proportional to the variance, 0.5 = to the standard deviation."""
    on: str = "outcome"

    def __post_init__(self) -> None:
        if not 0 <= self.power <= LARGEST:
            raise ValueError(
                f"SoftWeight.power is an exponent: expected a number from 0 to {LARGEST:g}, found {self.power!r:.40}."
            )
        check_on(self)

    def rank(self, variances_P: Sequence[float | None]) -> list[Verdict]:
        candidates = positive(variances_P)
        largest = max(candidates, default=1.0)
        total = math.fsum(self._mass(variance, largest) for variance in candidates)
        verdicts = []
        for variance in variances_P:
            if variance is None:
                verdicts.append(Verdict(0.0, "unscored", None))
            elif variance == 0:
                verdicts.append(Verdict(0.0, "constant", 0.0))
            else:
                verdicts.append(Verdict(self._mass(variance, largest) * len(candidates) / total, "kept", variance))
        return verdicts

    def _mass(self, variance: float, largest: float) -> float:
        return max((variance / largest) ** self.power, LEAST)
