"""What a task's past says about its chance of success: a Beta distribution, and what the next group may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

JEFFREYS = (0.5, 0.5)
"""Beta(1/2, 1/2), the prior of a task that nobody has played."""


@dataclass(frozen=True, slots=True)
class Belief:
    """Beta(`ones`, `zeros`) on the chance that an episode of a task succeeds."""

    ones: float
    zeros: float

    @classmethod
    def of(
        cls, visits: Sequence[tuple[float, float]], discount: float, prior: tuple[float, float] = JEFFREYS
    ) -> Belief:
        """`visits`: (episodes, successes) of each visit, oldest first. The k-th last counts `discount`^(k - 1).

        Forgetting visit by visit, a <- a0 + d (a - a0) + successes, gives the same numbers.
        """
        weighted = [(discount**age, visit) for age, visit in enumerate(reversed(visits))]
        ones = math.fsum(weight * successes for weight, (_, successes) in weighted)
        episodes = math.fsum(weight * count for weight, (count, _) in weighted)
        return cls(prior[0] + ones, prior[1] + episodes - ones)

    @property
    def mean(self) -> float:
        """E[p]: the probability that the next episode succeeds."""
        return self.ones / (self.ones + self.zeros)

    @property
    def variance(self) -> float:
        """E[p (1 - p)]: the expected variance of an outcome, and of a group's sample variance at every size."""
        total = self.ones + self.zeros
        return self.ones * self.zeros / (total * (total + 1))

    def all_right(self, count: int) -> float:
        """The probability that the next `count` episodes all succeed: (a)_n / (a + b)_n."""
        return _rising_ratio(self.ones, self.ones + self.zeros, count)

    def all_wrong(self, count: int) -> float:
        """The probability that the next `count` episodes all fail: (b)_n / (a + b)_n."""
        return _rising_ratio(self.zeros, self.ones + self.zeros, count)

    def mixed(self, count: int) -> float:
        """The probability that the next `count` episodes neither all succeed nor all fail."""
        return 1 - self.all_right(count) - self.all_wrong(count)

    def worth(self, count: int, power: int) -> float:
        """E[(1 - p^n - q^n) p q^power]: the chance that a group of n = `count` varies, times p q^power.

        It is E[p q^power] times `mixed(n)` under Beta(a + 1, b + power). Power 2 is the value of Knapsack RL (Li et al.
        2025, arXiv:2509.25849), there with the last rate in place of a belief.
        """
        after = Belief(self.ones + 1, self.zeros + power)
        total = self.ones + self.zeros
        expected = self.ones * math.prod(self.zeros + each for each in range(power))
        return expected / math.prod(total + each for each in range(power + 1)) * after.mixed(count)


def _rising_ratio(part: float, whole: float, count: int) -> float:
    return math.prod((part + each) / (whole + each) for each in range(count))
