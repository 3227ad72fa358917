"""Asynchronous rollouts: the policy answers whoever is ready while the environments of the others still work.

Promise: the episodes of `collect` - groups and members in the same order, an environment that raises ends its own
episode alone - and no episode waits for the environment of another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from heedful.protocols import AnswersSubsets, ContinuousBatching, Episode, Policy
from heedful.rollout.collect import as_groups
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.rollout.player import Player
from heedful.types import Conversation, Group, Reply, Task

PATIENCE = 0.2
"""A sampler that answers batch by batch waits for company to who is ready, for at most this share of what its last
batch took. Without it, episodes a millisecond apart would be answered in two batches for the rest of their lives."""


def collect_async(
    policy: Policy,
    make_environment: Callable[[], Episode],
    tasks: Sequence[Task],
    group_size: int,
    max_turns: int,
    context: Context = FULL_HISTORY,
    *,
    threads: int = 32,
) -> list[Group]:
    """Play `group_size` episodes of every task, as `collect` does, with up to `threads` environments at work meanwhile.

    Whoever has a next observation joins those who are being answered, or, where the policy cannot do that, is answered
    with all others who are ready as soon as the sampler is idle. Each environment is used by one thread at a
    time, not always the same one; `make_environment` is called in the caller's thread, `start` is not. The policy is
    asked in the caller's thread, or, where it says so (`AnswersSubsets.parallel`), by several threads at once.

    The same policy, tasks and replies give the same episodes however long anything took, if replies do not depend on
    who is asked together. Raises ValueError for a policy that says they do.
    """
    parts = policy if isinstance(policy, AnswersSubsets) else None
    if parts is not None and parts.draws_together:
        raise ValueError(
            "Expected a policy whose replies do not depend on which conversations are asked together, since here that "
            "is a matter of time; found one that draws one stream of noise for all of them. Sample with "
            "Sampling(noise='conversation')."
        )
    parallel = 1 if parts is None else parts.parallel
    environments = ThreadPoolExecutor(threads, thread_name_prefix="environment")
    samplers = ThreadPoolExecutor(parallel, thread_name_prefix="sampler") if parallel > 1 else None
    try:
        rollout = _Rollout(policy, environments, samplers, parallel)
        seats = ((make_environment(), task, member) for task in tasks for member in range(group_size))
        return as_groups(policy, tasks, rollout.play((*seat, max_turns, context) for seat in seats))
    finally:
        # After an error nothing new begins. Calls that run cannot be stopped: they end by themselves, unheard.
        for pool in (environments, samplers):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)


Beginning = tuple[Episode, Task, int, int, Context]
"""What an `Episode` is made from."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """What one call of the policy gave."""

    episodes: Sequence[Player]
    replies: Sequence[Reply]


class _Rollout:
    """The episodes of one collection: whose environment is at work, who can be asked, who was asked."""

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
        """The keys of the episodes that have begun and not ended."""
        self._asked: dict[str, Player] = {}
        """Those whose replies grow, where newcomers join."""
        self._heard: SimpleQueue[Future[Player] | Future[_Answered]] = SimpleQueue()
        self._patience = 0.0
        """Seconds."""

    def play(self, beginnings: Iterable[Beginning]) -> list[Player]:
        """The episodes in the order of their beginnings, all ended."""
        begun = [self._work(Player, *beginning) for beginning in beginnings]
        if isinstance(self._policy, ContinuousBatching):
            self._policy.serve(self._arrivals, self._replied)
        while self._working or self._ready or self._samplers_at_work:
            self._hear(self._patience)
            self._ask()
        return [future.result() for future in begun]

    def _arrivals(self, wait: bool) -> list[Conversation]:
        """Who can be asked now; nobody, if asked to wait, when all episodes have ended."""
        self._hear(0.0, wait)
        ready, self._ready = self._ready, []
        self._asked.update({episode.key: episode for episode in ready})
        self._keep()
        return [episode.conversation for episode in ready]

    def _replied(self, key: str, reply: Reply) -> None:
        self._work(_advanced, self._asked.pop(key), reply)

    def _keep(self) -> None:
        if isinstance(self._policy, AnswersSubsets):
            self._policy.keep(frozenset(self._open))

    @property
    def _can_ask(self) -> bool:
        return bool(self._ready) and self._samplers_at_work < self._parallel

    def _hear(self, patience: float, wait: bool = True) -> None:
        """Note what has come back; `wait` for the first who can be asked, and for company for `patience` seconds."""
        deadline = None if wait else time.perf_counter()
        while self._working or self._samplers_at_work:
            if self._can_ask and deadline is None:
                deadline = time.perf_counter() + patience
            try:
                left = None if deadline is None else max(0.0, deadline - time.perf_counter())
                self._note(self._heard.get(timeout=left))
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

    def _ask(self) -> None:
        """Have everyone answered who is ready: by the caller, or in equal parts by the samplers that are idle."""
        if not self._can_ask:
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
            future.add_done_callback(self._heard.put)
        self._samplers_at_work += calls

    def _answer(self, episodes: Sequence[Player]) -> _Answered:
        return _Answered(episodes, self._policy.respond([episode.conversation for episode in episodes]))

    def _hand_out(self, answered: _Answered) -> None:
        """Give every environment its reply."""
        for episode, reply in zip(answered.episodes, answered.replies, strict=True):
            self._work(_advanced, episode, reply)

    def _work(self, call: Callable[..., Player], *arguments: object) -> Future[Player]:
        future = self._environments.submit(call, *arguments)
        future.add_done_callback(self._heard.put)
        self._working += 1
        return future


def _advanced(episode: Player, reply: Reply) -> Player:
    episode.advance(reply)
    return episode
