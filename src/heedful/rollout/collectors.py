"""The request for episodes, and the collectors that play it: in lock-step, or asynchronously for slow environments.

Both play the same episodes, and return groups in the order of the tasks, members in order of their number, every
episode ended. An environment that raises ends its own episode alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from heedful.boundary import Threads, settings
from heedful.policies.sampling import Sampling
from heedful.protocols import AnswersSubsets, ContinuousBatching, Episode, Policy
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.rollout.player import Player, made
from heedful.types import Conversation, Group, Reply, Task

Argument = TypeVar("Argument")
Result = TypeVar("Result")

PATIENCE = 0.2
"""The most that a batch may be delayed so that more conversations can join it, as a fraction of the last batch's
duration. Without a delay, episodes a millisecond apart would be answered in two batches until they end."""


@dataclass(frozen=True, slots=True)
class Request:
    """The episodes of one collection: `group_size` of every task, or as many as `sizes` says.

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
    sizes: Sequence[int] = ()
    """Episodes of each task, in the order of the tasks. Empty: `group_size` of every task."""

    @property
    def _sized(self) -> Iterator[tuple[Task, int]]:
        return zip(self.tasks, self.sizes or [self.group_size] * len(self.tasks), strict=True)

    def seats(self) -> Iterator[tuple[Episode, Task, int]]:
        """An episode, its task and its member number for each player, in order. Episodes are made on demand."""
        first = self.first_member
        return (
            (made(self.make_episode), task, member)
            for task, size in self._sized
            for member in range(first, first + size)
        )

    def player(self, seat: tuple[Episode, Task, int]) -> Player:
        """The player of one seat. Its episode starts here."""
        return Player(*seat, self.max_turns, self.context)

    def groups(self, policy: Policy, players: Sequence[Player]) -> list[Group]:
        """The trajectories of players that have ended, in the order of their seats, as groups."""
        trajectories = (player.trajectory(policy.temperature, policy.version) for player in players)
        return [Group(task, tuple(islice(trajectories, size))) for task, size in self._sized]


class Collector(Protocol):
    """Plays episodes. Its implementations are frozen dataclasses."""

    def sampling(self, sampling: Sampling) -> Sampling:
        """How a policy must sample for this collector. Raises ValueError for settings that it cannot work with."""
        ...

    def __call__(self, policy: Policy, request: Request) -> list[Group]:
        """One group per task, in the order of the tasks, members in order, every episode ended."""
        ...


@settings
class LockStep:
    """All conversations one turn further at a time: the largest batches, but every turn lasts as long as its slowest
    environment step."""

    threads: Threads = 1
    """Environments at work at once. 1 = one after the other, in the sampler's own thread."""

    def sampling(self, sampling: Sampling) -> Sampling:
        return replace(sampling, noise="batch") if sampling.noise == "auto" else sampling

    def __call__(self, policy: Policy, request: Request) -> list[Group]:
        """Play the request. The number of threads changes the time, never the episodes.

        An episode whose environment raises ends as `Ending.ERROR` with no outcome. The others continue.
        """
        with _threads(self.threads, "environment") if self.threads > 1 else nullcontext() as pool:
            players = _each(pool, request.player, request.seats())
            live = [player for player in players if player.ending is None]
            while live:
                replies = policy.respond([player.conversation for player in live])
                _each(pool, lambda pair: pair[0].advance(pair[1]), zip(live, replies, strict=True))
                live = [player for player in live if player.ending is None]
        return request.groups(policy, players)


@contextmanager
def _threads(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """After an error no further call begins. Running calls cannot be stopped: they end unattended."""
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _each(
    pool: ThreadPoolExecutor | None, call: Callable[[Argument], Result], arguments: Iterable[Argument]
) -> list[Result]:
    """The results in the order of the arguments, which are drawn in the caller's thread."""
    return list(map(call, arguments) if pool is None else pool.map(call, arguments))


@settings
class Asynchronous:
    """Ready conversations are answered while the environments of others still work: for environments that are slow."""

    threads: Threads = 32
    """Environments at work at once. With --env-workers: at least the number of workers."""

    def sampling(self, sampling: Sampling) -> Sampling:
        if sampling.noise == "batch":
            raise ValueError(
                "--collect async answers conversations as they come, so noise drawn for a whole batch would make "
                "episodes a matter of time; leave --sampling.noise out (auto), or set it to conversation"
            )
        return replace(sampling, noise="conversation")

    def __call__(self, policy: Policy, request: Request) -> list[Group]:
        """Play the request with up to `threads` environments at work.

        With `ContinuousBatching`, a conversation joins the running batch as soon as it is ready. Any other policy gets
        all ready conversations in one call as soon as it is idle. It is called from the caller's thread, or from
        several threads at once if its `AnswersSubsets.parallel` allows that. Each environment is used by one thread
        at a time, not always the same one. `start` runs in such a thread, too.

        If replies do not depend on which conversations are answered together, the same policy and request give the
        same episodes, however long any call took. The tasks of the request are distinct.
        """
        parallel = policy.parallel if isinstance(policy, AnswersSubsets) else 1
        with (
            _threads(self.threads, "environment") as environments,
            _threads(parallel, "sampler") if parallel > 1 else nullcontext() as samplers,
        ):
            players = _Rollout(policy, environments, samplers, parallel).play(request)
            return request.groups(policy, players)


COLLECTORS: Mapping[str, type] = {"lock_step": LockStep, "async": Asynchronous}
"""Collectors by the name that configurations and the command line use."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """The result of one call of the policy."""

    players: Sequence[Player]
    replies: Sequence[Reply]


class _Rollout:
    """The state of one collection: environments at work, players that are ready, and calls of the policy."""

    def __init__(
        self, policy: Policy, environments: ThreadPoolExecutor, samplers: ThreadPoolExecutor | None, parallel: int
    ) -> None:
        self._policy = policy
        self._environments = environments
        self._samplers = samplers
        self._samplers_at_work = 0
        self._parallel = parallel
        self._working = 0
        """Environment calls that run or wait for a thread."""
        self._ready: list[Player] = []
        self._open: set[str] = set()
        """The keys of the players that have begun and not ended."""
        self._sampling: dict[str, Player] = {}
        """The players whose replies are being sampled, under continuous batching."""
        self._done: SimpleQueue[Future[Player] | Future[_Answered]] = SimpleQueue()
        """Calls that have returned."""
        self._patience = 0.0
        """Seconds."""

    def play(self, request: Request) -> list[Player]:
        """The players in the order of their seats, all ended."""
        begun = [self._work(request.player, seat) for seat in request.seats()]
        if isinstance(self._policy, ContinuousBatching):
            self._policy.serve(self._arrivals, self._replied)
        while self._working or self._ready or self._samplers_at_work:
            self._receive(self._patience)
            self._answer_ready()
        return [future.result() for future in begun]

    def _arrivals(self, wait: bool) -> list[Conversation]:
        """The conversations that are ready now. With `wait`, an empty list means that all episodes have ended."""
        self._receive(0.0, wait)
        ready, self._ready = self._ready, []
        self._sampling.update({player.key: player for player in ready})
        self._keep()
        return [player.conversation for player in ready]

    def _replied(self, key: str, reply: Reply) -> None:
        self._work(_advanced, self._sampling.pop(key), reply)

    def _keep(self) -> None:
        if isinstance(self._policy, AnswersSubsets):
            self._policy.keep(frozenset(self._open))

    @property
    def _can_answer(self) -> bool:
        return bool(self._ready) and self._samplers_at_work < self._parallel

    def _receive(self, patience: float, wait: bool = True) -> None:
        """Take in the calls that have returned.

        With `wait`, block until a player can be answered, and then up to `patience` seconds more for further ones.
        """
        deadline = None if wait else time.perf_counter()
        while self._working or self._samplers_at_work:
            if self._can_answer and deadline is None:
                deadline = time.perf_counter() + patience
            try:
                left = None if deadline is None else max(0.0, deadline - time.perf_counter())
                self._note(self._done.get(timeout=left))
            except Empty:
                return

    def _note(self, future: Future[Player] | Future[_Answered]) -> None:
        """Raises what the call has raised."""
        result = future.result()
        if isinstance(result, _Answered):
            self._samplers_at_work -= 1
            self._hand_out(result)
            return
        self._working -= 1
        if result.ending is None:
            self._ready.append(result)
            self._open.add(result.key)
        else:
            self._open.discard(result.key)

    def _answer_ready(self) -> None:
        """Answer all ready players: in the caller's thread, or in equal parts in the idle sampler threads."""
        if not self._can_answer:
            return
        ready, self._ready = self._ready, []
        self._keep()
        if self._samplers is None:
            start = time.perf_counter()
            answered = self._answer(ready)
            self._patience = PATIENCE * (time.perf_counter() - start)
            self._hand_out(answered)
            return
        calls = min(self._parallel - self._samplers_at_work, len(ready))
        for number in range(calls):
            future = self._samplers.submit(self._answer, ready[number::calls])
            future.add_done_callback(self._done.put)
        self._samplers_at_work += calls

    def _answer(self, players: Sequence[Player]) -> _Answered:
        return _Answered(players, self._policy.respond([player.conversation for player in players]))

    def _hand_out(self, answered: _Answered) -> None:
        """Give every environment its reply."""
        for player, reply in zip(answered.players, answered.replies, strict=True):
            self._work(_advanced, player, reply)

    def _work(self, call: Callable[..., Player], *arguments: object) -> Future[Player]:
        future = self._environments.submit(call, *arguments)
        future.add_done_callback(self._done.put)
        self._working += 1
        return future


def _advanced(player: Player, reply: Reply) -> Player:
    player.advance(reply)
    return player
