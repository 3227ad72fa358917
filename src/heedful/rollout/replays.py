"""Episodes played again: the same replies under fresh noise of the environment. No model and no tokens."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.diagnostics.statistics.group_statistics import values_on
from heedful.envs.common.contract import turns_of
from heedful.protocols import Environment
from heedful.rollout.player import Player, made
from heedful.types import Group, Trajectory


def replayed_values(env: Environment, groups: Sequence[Group], on: str, times: int) -> list[list[list[float | None]]]:
    """What the filter would look at (`on`) in `times` replays of every trajectory: per group, member and replay.

    Members beyond those of the group select the noise, so every replay has its own. The replies are fixed: they do not
    react to where the noise leads. A replay whose replies run out before its end counts as not solved. One that breaks
    has no value.
    """
    replays = [
        Group(group.task, tuple(_replay(env, trajectory, first + k) for k in range(times)))
        for group in groups
        for trajectory, first in zip(group.trajectories, _free_members(group, times), strict=True)
    ]
    values = iter(values_on(replays, on))
    return [[next(values) for _ in group.trajectories] for group in groups]


def _free_members(group: Group, times: int) -> range:
    """For each trajectory the first of `times` member numbers that nothing else in the group has."""
    first = 1 + max((trajectory.member for trajectory in group.trajectories), default=0)
    return range(first, first + times * len(group.trajectories), times)


def _replay(env: Environment, trajectory: Trajectory, member: int) -> Trajectory:
    player = Player(made(env.episode), trajectory.task, member, turns_of(env))
    for turn in trajectory.turns:
        if player.ending is None:
            player.advance(turn.reply)
    player.stop()
    return player.trajectory(trajectory.temperature, trajectory.policy_version)
