"""The best success that any policy can reach on a slippery lake, computed exactly.

A policy that reads its input knows the lake and the player's place, but commits to all actions of a turn at once. So
the value iteration runs over turns, and within a turn over sequences of actions.
"""

from __future__ import annotations

from collections.abc import Sequence

from heedful.envs.frozen_lake.maps import ACTIONS, Lake, neighbours

MOST_WORK = 20_000
"""Most sequences of a turn x cells of the lake."""


def best_success(lake: Lake, slip: float, turns: int, per_turn: int) -> float | None:
    """The probability that the best policy reaches the goal within `turns` turns of 1 to `per_turn` actions.

    Without slip it is 1 on every lake whose shortest way fits into the budget. `None`: the lake is slippery, and large
    boards or long turns are beyond `MOST_WORK`.
    """
    if slip == 0:
        return float(0 <= lake.distances[lake.start] <= turns * per_turn)
    if len(ACTIONS) ** per_turn * lake.size**2 > MOST_WORK:
        return None
    values = [float(cell == lake.goal) for cell in range(lake.size**2)]
    for _ in range(turns):
        values = _best_turn(lake, slip, values, per_turn)
    return values[lake.start]


def _best_turn(lake: Lake, slip: float, values: Sequence[float], actions: int) -> list[float]:
    """The value of each cell before a turn of at most so many actions, given the values after it."""
    best = list(values)  # where the episode is over, and for a turn without an action
    after = [list(values)]
    for _ in range(actions):
        after = [_before(lake, slip, following, action) for following in after for action in range(len(ACTIONS))]
        for sequence in after:
            best = [max(pair) for pair in zip(best, sequence, strict=True)]
    return best


def _before(lake: Lake, slip: float, values: Sequence[float], action: int) -> list[float]:
    """The value of each cell before one action, given the values after it. Goal and holes end the episode."""
    left, right = (action - 1) % len(ACTIONS), (action + 1) % len(ACTIONS)
    return [
        values[cell]
        if cell == lake.goal or lake.holes[cell]
        else (1 - slip) * values[targets[action]] + slip / 2 * (values[targets[left]] + values[targets[right]])
        for cell, targets in enumerate(neighbours(lake.size))
    ]
