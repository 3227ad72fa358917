"""The request for episodes, and the collector that plays it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from heedful.policies.sampling import Sampling
from heedful.protocols import Episode, Policy
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.rollout.player import Player, made
from heedful.types import Group, Task


@dataclass(frozen=True, slots=True)
class Request:
    """The episodes of one collection: `group_size` of every task.

    The members of a group share the start state and have independent noise.
    """

    make_episode: Callable[[], Episode]
    """Makes an episode that has not started. It is called in the caller's thread."""
    tasks: Sequence[Task]
    group_size: int
    max_turns: int
    context: Context = FULL_HISTORY
    """How much of an episode the policy reads."""
    first_member: int = 0
    """Number of the first member. An environment's noise depends on the task and on this number."""

    def seats(self) -> Iterator[tuple[Episode, Task, int]]:
        """An episode, its task and its member number for each player, in order. Episodes are made on demand."""
        members = range(self.first_member, self.first_member + self.group_size)
        return ((made(self.make_episode), task, member) for task in self.tasks for member in members)

    def player(self, seat: tuple[Episode, Task, int]) -> Player:
        """The player of one seat. Its episode starts here."""
        return Player(*seat, self.max_turns, self.context)

    def groups(self, policy: Policy, players: Sequence[Player]) -> list[Group]:
        """The trajectories of players that have ended, in the order of their seats, as groups."""
        trajectories = [player.trajectory(policy.temperature, policy.version) for player in players]
        firsts = range(0, len(trajectories), self.group_size)
        return [
            Group(task, tuple(trajectories[first : first + self.group_size]))
            for task, first in zip(self.tasks, firsts, strict=True)
        ]


class Collector(Protocol):
    """Plays episodes. Its implementations are frozen dataclasses."""

    def sampling(self, sampling: Sampling) -> Sampling:
        """How a policy must sample for this collector. Raises ValueError for settings that it cannot work with."""
        ...

    def __call__(self, policy: Policy, request: Request) -> list[Group]:
        """One group per task, in the order of the tasks, members in order, every episode ended."""
        ...
