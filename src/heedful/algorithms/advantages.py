"""Credit within one group: plain floats in, plain floats out, callable from any trainer in one line.

Promise: a constant group earns exactly nothing, because group statistics are taken in Python floats and "constant"
means a range within a tolerance, not a standard deviation of zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from heedful.spread import is_constant, sample_variance, scored


@dataclass(frozen=True, slots=True)
class GroupRelative:
    """A_i = R_i - mean(R), divided by the group's sample standard deviation, 1/(G - 1), when `standardize`.

    Source: GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1.2); without the division, Dr. GRPO
    (Liu et al. 2025, arXiv:2503.20783). Deviations: no epsilon is added to the deviation (common code adds 1e-6 or
    1e-4), since a group whose range is at most 1e-6 max(1, largest absolute reward) has got exact zeros before any
    division; a group of one earns 0, not its raw reward.
    """

    standardize: bool = True

    def __call__(self, rewards_G: Sequence[float | None]) -> list[float]:
        """One advantage per member; members whose reward is `None` or NaN are left out of the statistics and get 0.

        Raises ValueError for an infinite reward.
        """
        values = scored(rewards_G)
        if any(math.isinf(value) for value in values):
            raise ValueError(
                f"Advantages need finite rewards, but this group holds {list(rewards_G)}; "
                "mark a trajectory that cannot be scored with None instead of an infinite reward."
            )
        if is_constant(values):
            return [0.0] * len(rewards_G)
        mean = fmean(values)
        divisor = math.sqrt(sample_variance(values)) if self.standardize else 1.0
        return [0.0 if reward is None or math.isnan(reward) else (reward - mean) / divisor for reward in rewards_G]
