"""Credit per turn: a member's return from a turn on, compared with the other members' returns from that turn on.

The baseline of a member's turn is independent of the member's own actions. So the expected estimate is the gradient of
the expected reward, also where the policy decides how many turns an episode has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from heedful.boundary import Share, settings
from heedful.diagnostics.statistics.group_statistics import is_constant, sample_variance, scored
from heedful.types import Trajectory


@settings
class TurnReturns:
    """A_{i,t} = R_{i,t} - mean over the other members j of R_{j,t}, where R_{i,t} = sum_{s >= t} gamma^(s-t) r_{i,s}.

    A member that ended before turn t has R_{j,t} = 0 and stays in the mean: from there on it earned nothing. With one
    turn per episode this is leave-one-out (Ahmadian et al. 2024, arXiv:2402.14740).

    Deviation from turn-level estimators in use (Wei et al. 2025, arXiv:2505.11821): those take the mean reward of turn
    t over the members that reached turn t, and add up the differences. A member that stops then avoids the means of the
    turns that it did not take. So its baseline depends on its own choice to stop. The estimate is biased towards short
    episodes where turns pay and towards long ones where they cost (the derivation is in verl's issue 7244). Here
    every member's baseline at turn t is a function of the others' episodes alone.

    With gamma below 1 this is the usual estimate of the discounted objective. It lacks the factor gamma^t in front of
    turn t that the exact gradient has.
    """

    gamma: Share = 1.0
    """Discount per turn."""
    standardize: bool = False
    """Divide the advantages of a turn by the sample standard deviation of the group's R_t. Off by default, because this
    deviation depends on the member's own actions: the estimate becomes biased, and rare late turns get large values."""

    def __call__(self, rewards_GK: Sequence[Sequence[float] | None]) -> list[list[float]]:
        """One advantage per turn of each member, given its rewards per turn. An unscored member, `None`, gets none.

        Unscored members are left out of every mean. A turn from which all members earned the same gets exactly 0, and
        so does every turn in a group with one scored member.
        """
        returns_GK = [None if rewards is None else self._to_go(rewards) for rewards in rewards_GK]
        of_scored = [returns for returns in returns_GK if returns is not None]
        turns = max((len(returns) for returns in of_scored), default=0)
        totals_K, divisors_K = [0.0] * turns, [math.inf] * turns
        for turn in range(turns):
            returns_G = [returns[turn] if turn < len(returns) else 0.0 for returns in of_scored]
            if not is_constant(returns_G):
                totals_K[turn] = math.fsum(returns_G)
                divisors_K[turn] = math.sqrt(sample_variance(returns_G)) if self.standardize else 1.0
        return [
            [
                (to_go - (total - to_go) / (len(of_scored) - 1)) / divisor if math.isfinite(divisor) else 0.0
                for to_go, total, divisor in zip(returns or (), totals_K, divisors_K, strict=False)
            ]
            for returns in returns_GK
        ]

    def turn_advantages(self, trajectories_G: Sequence[Trajectory]) -> list[list[float]]:
        """One advantage per turn (`CreditsTurns`), from the reward of each turn of each trajectory."""
        return self(
            [
                [turn.reward for turn in trajectory.turns] if scored([trajectory.reward]) else None
                for trajectory in trajectories_G
            ]
        )

    def _to_go(self, rewards_K: Sequence[float]) -> list[float]:
        returns, to_go = [], 0.0
        for reward in reversed(rewards_K):
            to_go = float(reward) + self.gamma * to_go
            returns.append(to_go)
        return returns[::-1]
