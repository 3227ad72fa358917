"""Lock-step rollouts: one batch of conversations, all of them one turn further at a time.

Promise: groups come back in the order of the tasks, members in order of their number, every episode ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from heedful.protocols import Episode, Policy
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.rollout.player import Player
from heedful.types import Group, Task

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def collect(
    policy: Policy,
    make_environment: Callable[[], Episode],
    tasks: Sequence[Task],
    group_size: int,
    max_turns: int,
    context: Context = FULL_HISTORY,
    *,
    threads: int = 1,
) -> list[Group]:
    """Play `group_size` episodes of every task with one policy, which reads as much of an episode as `context` says.

    Members of a group face the same start state and independent noise. An episode whose environment raises
    ends as `Ending.ERROR` with no outcome; the others go on. With several `threads` so many environments work at once,
    and the policy is asked when all of them have answered: what is played is the same.
    """

    def begin(seat: tuple[Episode, Task, int]) -> Player:
        return Player(*seat, max_turns, context)

    # Lazily: with one thread an environment is made when its turn to start has come.
    seats = ((make_environment(), task, member) for task in tasks for member in range(group_size))
    with environment_threads(threads) as pool:
        episodes = _each(pool, begin, seats)
        live = [episode for episode in episodes if episode.ending is None]
        while live:
            replies = policy.respond([episode.conversation for episode in live])
            _each(pool, lambda pair: pair[0].advance(pair[1]), zip(live, replies, strict=True))
            live = [episode for episode in live if episode.ending is None]
    return as_groups(policy, tasks, episodes)


def as_groups(policy: Policy, tasks: Sequence[Task], episodes: Sequence[Player]) -> list[Group]:
    """Episodes that have ended, equally many of each task in the order of the tasks, as groups."""
    members = len(episodes) // max(1, len(tasks))
    trajectories = [episode.trajectory(policy.temperature, policy.version) for episode in episodes]
    return [
        Group(task, tuple(trajectories[number * members : (number + 1) * members])) for number, task in enumerate(tasks)
    ]


@contextmanager
def environment_threads(threads: int) -> Iterator[ThreadPoolExecutor | None]:
    """Threads in which environments work; `None` for one: the caller's own will do.

    On the way out of an error nothing new begins. Calls that run cannot be stopped: they end by themselves, and nobody
    waits for what they return.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="environment") if threads > 1 else None
    try:
        yield pool
    finally:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _each(
    pool: ThreadPoolExecutor | None, call: Callable[[Argument], Result], arguments: Iterable[Argument]
) -> list[Result]:
    """The results in the order of the arguments, which are drawn in the caller's thread."""
    return list(map(call, arguments) if pool is None else pool.map(call, arguments))
