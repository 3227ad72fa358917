"""Credit within one group: plain floats in, plain floats out, callable from any trainer in one line.

A constant group gets advantages of exactly zero. Group statistics are Python floats, and "constant" means a range
within a tolerance, not a standard deviation of zero.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from annotated_types import Interval

from heedful.diagnostics.statistics.group_statistics import is_constant, sample_variance, scored
from heedful.types import Trajectory


class OfRewards(ABC):
    """The common part: credit for a member by its total reward."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, rewards_G: Sequence[float | None]) -> list[float]:
        """One advantage per member. Members whose reward is `None` or NaN are left out of the statistics and get 0."""

    def member_advantages(self, trajectories_G: Sequence[Trajectory]) -> list[float]:
        """One advantage per member (`CreditsMembers`), from the total reward of each trajectory."""
        return self([trajectory.reward for trajectory in trajectories_G])


@dataclass(frozen=True, slots=True)
class GroupRelative(OfRewards):
    """A_i = R_i - mean(R), divided by the group's sample standard deviation, 1/(G - 1), when `standardize`.

    Source: GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1.2). Without the division: Dr. GRPO (Liu et al. 2025,
    arXiv:2503.20783). Deviations: no epsilon is added to the deviation (common code adds 1e-6 or 1e-4). None is needed,
    because a group whose range is at most 1e-6 max(1, largest absolute reward) gets exact zeros before any division.
    A group of one gets 0, not its raw reward.
    """

    standardize: bool = True
    """Divide by the group's sample standard deviation."""

    def __call__(self, rewards_G: Sequence[float | None]) -> list[float]:
        values = scored(rewards_G)
        if is_constant(values):
            return [0.0] * len(rewards_G)
        mean = fmean(values)
        divisor = math.sqrt(sample_variance(values)) if self.standardize else 1.0
        return [0.0 if reward is None or math.isnan(reward) else (reward - mean) / divisor for reward in rewards_G]


@dataclass(frozen=True, slots=True)
class LeaveOneOut(OfRewards):
    """A_i = R_i - mean of the other members' rewards, which is G / (G - 1) (R_i - mean(R)).

    The baseline of a member does not depend on its own reward, so the estimate of the gradient is unbiased at any G.
    Source: RLOO (Ahmadian et al. 2024, arXiv:2402.14740, section 3.3; Kool et al. 2019). A constant group and a group
    of one get exactly 0.
    """

    def __call__(self, rewards_G: Sequence[float | None]) -> list[float]:
        values = scored(rewards_G)
        if is_constant(values):
            return [0.0] * len(rewards_G)
        total, others = math.fsum(values), len(values) - 1
        return [
            0.0 if reward is None or math.isnan(reward) else reward - (total - reward) / others for reward in rewards_G
        ]


@dataclass(frozen=True, slots=True)
class PerSuccess(OfRewards):
    """A_i = (R_i - mean(R)) / mean(R), and zeros where the mean is not above 0.

    For rewards of 0 and 1. A success is divided by how often the group succeeds, so rare ones weigh more. With one
    parameter per task, its log-odds, the expected mean over n members is q (1 - q^(n - 1)), the gradient of log p cut
    off after n - 1 terms. Source: MaxRL (arXiv:2602.02710), its public code. That order is n - 1, and not n as its
    documentation says.
    """

    def __call__(self, rewards_G: Sequence[float | None]) -> list[float]:
        values = scored(rewards_G)
        mean = fmean(values) if values else 0.0
        if mean <= 0 or is_constant(values):
            return [0.0] * len(rewards_G)
        return [0.0 if reward is None or math.isnan(reward) else reward / mean - 1 for reward in rewards_G]


@dataclass(frozen=True, slots=True)
class AboveQuantile(OfRewards):
    """A_i = (R_i - the group's quantile) / the group's sample standard deviation.

    The quantile is the smallest reward that at least a share `quantile` of the members do not exceed. Of rewards 0 and
    1 it is 0 up to a success rate of 1 - `quantile`: then only successes count, and above it only failures. Source: QAE
    (arXiv:2509.22611). The paper's quantile was not found, and .4 is that of other implementations.
    """

    quantile: Annotated[float, Interval(gt=0, lt=1)] = 0.4
    """The share."""

    def __call__(self, rewards_G: Sequence[float | None]) -> list[float]:
        values = sorted(scored(rewards_G))
        if is_constant(values):
            return [0.0] * len(rewards_G)
        baseline = values[math.ceil(self.quantile * len(values) - 1e-9) - 1]
        divisor = math.sqrt(sample_variance(values))
        return [0.0 if reward is None or math.isnan(reward) else (reward - baseline) / divisor for reward in rewards_G]
