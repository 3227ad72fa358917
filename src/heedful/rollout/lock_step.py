"""Lock-step rollouts: one batch of conversations, all of them one turn further at a time.

Groups are returned in the order of the tasks, members in order of their number, every episode ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from heedful.boundary import MOST_AT_ONCE, refuse_above, refuse_below
from heedful.policies.sampling import Sampling
from heedful.protocols import Policy
from heedful.rollout.player import replies_of
from heedful.rollout.request import Request
from heedful.types import Group

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LockStep:
    """All conversations one turn further at a time: the largest batches, but every turn lasts as long as its slowest
    environment step."""

    threads: int = 1
    """Environments at work at once. 1 = one after the other, in the sampler's own thread."""

    def __post_init__(self) -> None:
        refuse_below(self, threads=1)
        refuse_above(self, threads=MOST_AT_ONCE)

    def sampling(self, sampling: Sampling) -> Sampling:
        return replace(sampling, noise="batch") if sampling.noise == "auto" else sampling

    def __call__(self, policy: Policy, request: Request) -> list[Group]:
        """Play the request. The number of threads changes the time, never the episodes.

        An episode whose environment raises ends as `Ending.ERROR` with no outcome. The others continue.
        """
        with _environment_threads(self.threads) as pool:
            players = _each(pool, request.player, request.seats())
            live = [player for player in players if player.ending is None]
            while live:
                replies = replies_of(policy, [player.conversation for player in live])
                _each(pool, lambda pair: pair[0].advance(pair[1]), zip(live, replies, strict=True))
                live = [player for player in live if player.ending is None]
        return request.groups(policy, players)


@contextmanager
def _environment_threads(threads: int) -> Iterator[ThreadPoolExecutor | None]:
    """The threads of the environments. `None` for one, since the caller's own thread does the work.

    After an error no further call begins. Running calls cannot be stopped: they end unattended.
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
