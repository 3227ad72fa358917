"""What training makes of rewards: overlong shaping, and components that do not count. Outcomes do not change.

So a filter on outcomes sees no spread from the penalty of overlong replies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from heedful.types import Group, Reply, Trajectory, Turn

COMPONENT = "overlong"
"""The reward component of the penalty."""


def overlong_penalty(reply: Reply, limit: int, buffer: float, penalty: float) -> float:
    """0 up to `limit` - `buffer` sampled tokens, then linear down to -`penalty` at `limit`.

    A reply that was cut costs the whole penalty, also if the model's window was the nearer limit.

    Source: DAPO's soft overlong punishment (Yu et al. 2025, arXiv:2503.14476, eq. 13). Its penalty is 1, with rewards
    of 1 and -1. Deviation: applied per turn, because every turn of an agent has its own limit.
    """
    over = max(0.0, len(reply.ids) - (limit - buffer)) / buffer
    return -penalty * (1.0 if reply.cut else min(over, 1.0)) if reply.cut or over > 0 else 0.0


def shape_overlong(groups: Sequence[Group], limit: int, share: float, penalty: float) -> list[Group]:
    """The groups with the reward component `overlong` in every turn. It is 0 if the reply ended in time.

    `limit`: most sampled tokens of a reply. `share`: the last part of the limit, in which length costs, above 0 and at
    most 1. `penalty`: the most that it costs. Raises ValueError if the environment itself has a component of this name.
    """
    buffer = share * limit

    def shaped(turn: Turn) -> Turn:
        if COMPONENT in turn.rewards:
            raise ValueError(
                f"Overlong shaping adds the reward component {COMPONENT!r}, but the environment gives one of that name "
                "itself; rename it there, or switch shaping off with --algorithm.overlong-buffer 0."
            )
        cost = overlong_penalty(turn.reply, limit, buffer, penalty)
        return replace(turn, rewards={**turn.rewards, COMPONENT: cost})

    def of_trajectory(trajectory: Trajectory) -> Trajectory:
        return replace(trajectory, turns=tuple(map(shaped, trajectory.turns)))

    return [replace(group, trajectories=tuple(map(of_trajectory, group.trajectories))) for group in groups]


def without_rewards(groups: Sequence[Group], names: Collection[str]) -> list[Group]:
    """The groups with 0 for these components of the reward."""

    def unpaid(turn: Turn) -> Turn:
        return replace(turn, rewards={name: 0.0 if name in names else paid for name, paid in turn.rewards.items()})

    def of_trajectory(trajectory: Trajectory) -> Trajectory:
        return replace(trajectory, turns=tuple(map(unpaid, trajectory.turns)))

    return [replace(group, trajectories=tuple(map(of_trajectory, group.trajectories))) for group in groups]
