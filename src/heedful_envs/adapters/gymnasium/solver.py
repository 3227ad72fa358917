"""The best policy of a game whose transitions gymnasium lists (`P`): FrozenLake, CliffWalking and Taxi.

For every number of actions left, no policy succeeds with a higher probability: value iteration over the horizon, on
the game's own probabilities. Of equally good policies the fastest is taken, then the first in the order of actions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SETTLED = 1e-12
"""Chances that an action more changes by less do not change any more."""

HASTE = 0.999
"""What success is worth one action later: decides between ways that are equally sure."""


@dataclass(frozen=True, slots=True)
class Solution:
    """What can be reached within a horizon, and how."""

    actions: list[dict[int, int]]
    """Actions left - 1 -> state -> the best action. The last entry holds for more actions as well."""
    chances: dict[int, float]
    """State -> about the probability of success with the whole horizon left. 0 if there is no way."""

    def action(self, left: int, state: int) -> int:
        """The best action with `left` actions left."""
        return self.actions[min(left, len(self.actions)) - 1][state]


def solve(environment: Any, horizon: int, succeeds: Callable[[float], bool]) -> Solution:
    """`succeeds`: whether a last step that pays so much ends the game as a success.

    Raises ValueError for a game that does not list its transitions.
    """
    table = getattr(environment, "P", None)
    if not isinstance(table, dict):
        raise ValueError(
            f"gymnasium: only games that list their transitions (FrozenLake, CliffWalking, Taxi) can be solved and "
            f"demonstrated, and {type(environment).__name__} does not. Train a model of your own with --model PATH."
        )
    chances = dict.fromkeys(table, 0.0)
    policy: list[dict[int, int]] = []
    for _ in range(horizon):
        worth = {
            state: {action: _chance(outcomes, chances, succeeds) for action, outcomes in moves.items()}
            for state, moves in table.items()
        }
        policy.append({state: max(moves, key=lambda a: (round(moves[a], 9), -a)) for state, moves in worth.items()})
        before, chances = chances, {state: HASTE * max(moves.values()) for state, moves in worth.items()}
        if all(abs(chances[state] - before[state]) < SETTLED for state in table):
            break
    return Solution(policy, chances)


def likely_next(environment: Any, state: int, action: int) -> tuple[int, bool]:
    """The most probable next state (of equally probable ones the one in the middle, as intended), and if it ends."""
    outcomes = environment.P[state][action]
    most = max(probability for probability, *_ in outcomes)
    likely = [outcome for outcome in outcomes if outcome[0] >= most - 1e-9]
    _, following, _, over = likely[len(likely) // 2]
    return int(following), bool(over)


def _chance(outcomes: Any, chances: dict[int, float], succeeds: Callable[[float], bool]) -> float:
    return sum(
        probability * (float(succeeds(reward)) if over else chances[following])
        for probability, following, reward, over in outcomes
    )
