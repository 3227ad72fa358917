"""Generalized advantage estimation for episodes of several turns: over sampled tokens only.

Text of the environment is neither valued nor discounted. The state after the last sampled token of a turn is the state
before the first token of the next turn. Torch-free, float64.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Literal

from heedful.boundary import Share, settings
from heedful.diagnostics.statistics.group_statistics import is_constant, sample_variance
from heedful.types import SampledTrajectory, TokenCredit

Per = Literal["token", "turn"]


@settings
class Gae:
    """delta_i = r_i + g_i V_{i+1} - V_i and A_i = delta_i + g_i l_i A_{i+1}, over the sampled tokens i of a trajectory.

    V_i is the value of the state before token i. `per="token"`: g_i = gamma and l_i = lam everywhere. `per="turn"`:
    g_i = gamma and l_i = lam where token i + 1 belongs to a later turn, and both are 1 within a turn. Then a turn is
    one step. At the first token of each turn A is the estimate over turns, with the values at their starts. A later
    token of the same turn has the same estimate, with its own value as the baseline.

    A turn's reward is given to its last sampled token (where a turn has none, to the last one before it). After the
    last token V = 0, however the episode ended. There is no bootstrapping, since the objective is the return of the
    episode as it is played: at the limit of turns or tokens it is over, in evaluation too, and nothing follows. The
    agent is told its turns and not its tokens. So for the critic an episode that ends `out_of_tokens` ends by surprise.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16. Deviation from common code: tokens that were not sampled
    have no values and no rewards here, so no reward can be lost on one.
    """

    gamma: Share = 1.0
    """Discount per step. A step is a token or a turn, see per."""
    lam: Share = 1.0
    """Weight of longer estimates: 1 = observed rewards minus the value, 0 = one step and the next value."""
    per: Per = "turn"
    """Whether gamma and lam count once per sampled token or once per turn."""
    whiten: bool = True
    """Shift and scale the advantages of all trained tokens of a step to mean 0 and sample deviation 1."""

    def __call__(self, rewards_K: Sequence[float], values_T: Sequence[float], turns_T: Sequence[int]) -> TokenCredit:
        """The credit of one trajectory's sampled tokens, before whitening. A return is advantage plus value.

        `values_T`, `turns_T`: for each sampled token the value before it, and the number of its turn. A reward of a
        turn before the first sampled token is left out, since no token earned it.
        """
        advantages = [0.0] * len(values_T)
        advantage, next_value, next_turn = 0.0, 0.0, None
        rewards_T, values = _on_last_tokens(rewards_K, turns_T), [float(value) for value in values_T]
        for place in reversed(range(len(values_T))):
            steps = self.per == "token" or turns_T[place] != next_turn
            gamma, lam = (self.gamma, self.lam) if steps else (1.0, 1.0)
            delta = rewards_T[place] + gamma * next_value - values[place]
            advantage = delta + gamma * lam * advantage
            advantages[place] = advantage
            next_value, next_turn = values[place], turns_T[place]
        return TokenCredit(advantages, [one + value for one, value in zip(advantages, values, strict=True)])

    def token_credits(self, trajectories_B: Sequence[SampledTrajectory]) -> list[TokenCredit]:
        """The credit of all trajectories of a step (`CreditsTokens`), with their advantages whitened together."""
        credits_B = [self(one.rewards_K, one.values_T, one.turns_T) for one in trajectories_B]
        whitened_BT = self.whitened([credit.advantages_T for credit in credits_B])
        return [
            TokenCredit(advantages_T, credit.returns_T)
            for advantages_T, credit in zip(whitened_BT, credits_B, strict=True)
        ]

    def observed_returns(self, trajectories_B: Sequence[SampledTrajectory]) -> list[list[float]]:
        """The observed returns of all trajectories of a step (`UsesCritic`)."""
        return [self.observed(one.rewards_K, one.turns_T) for one in trajectories_B]

    def observed(self, rewards_K: Sequence[float], turns_T: Sequence[int]) -> list[float]:
        """For each sampled token the discounted rewards from this token on, without any estimate of a critic."""
        return list(replace(self, lam=1.0)(rewards_K, [0.0] * len(turns_T), turns_T).returns_T)

    def whitened(self, advantages_BT: Sequence[Sequence[float]]) -> list[list[float]]:
        """The advantages of all trained tokens of a step, whitened together if `whiten` is set.

        (A - mean) / s with the sample deviation, 1/(n - 1), and no epsilon. Constant advantages (range at most
        1e-6 max(1, largest absolute value), or a single token) become exactly 0. They have no spread to scale, and
        a division would only enlarge rounding errors.
        """
        if not self.whiten:
            return [list(advantages_T) for advantages_T in advantages_BT]
        flat = [advantage for advantages_T in advantages_BT for advantage in advantages_T]
        if is_constant(flat):
            return [[0.0] * len(advantages_T) for advantages_T in advantages_BT]
        mean, deviation = fmean(flat), math.sqrt(sample_variance(flat))
        return [[(advantage - mean) / deviation for advantage in advantages_T] for advantages_T in advantages_BT]


def explained_variance(values: Sequence[float], returns: Sequence[float]) -> float | None:
    """1 - variance(returns - values) / variance(returns): 1 = foreseen, 0 = no better than a constant, may be negative.

    `None` where the returns are constant, because they have no variance to explain.
    """
    if is_constant(returns):
        return None
    errors = [one - value for one, value in zip(returns, values, strict=True)]
    return 1.0 - sample_variance(errors) / sample_variance(returns)


def _on_last_tokens(rewards_K: Sequence[float], turns_T: Sequence[int]) -> list[float]:
    rewards_T = [0.0] * len(turns_T)
    for turn, reward in enumerate(rewards_K):
        place = bisect_right(turns_T, turn) - 1
        if place >= 0:
            rewards_T[place] += float(reward)
    return rewards_T
