"""How a check plays an environment that may do anything: raise, hang, or return what no contract allows.

Every call into the environment is limited in time if the platform allows it. A failure is data. This module does not
judge: it hands the episodes to the rules.

The time limit needs the main thread and `signal.setitimer` (Linux, macOS). Elsewhere a call that hangs, hangs.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

from annotated_types import Interval

from heedful.boundary import Seconds, settings
from heedful.boundary.http import ServerUnreachable
from heedful.envs.checking.report import Breach, shortened
from heedful.envs.common.contract import (
    ContractError,
    checked_episode,
    checked_observation,
    checked_step,
    checked_task,
)
from heedful.guarded import Answered, PassesThrough, guarded_call
from heedful.types import Observation, Step, Task

Answer = TypeVar("Answer")

ABSENT = (ImportError, ServerUnreachable)
"""A missing library, or a server that the environment asks and that does not answer: no faults of the environment."""

MOST_REPLIES = 2000
"""Replies after which an episode is played no further, however many turns it may have."""


@settings(kw_only=True)
class Effort:
    """How much is played, and how long a call may take."""

    seeds: Annotated[int, Interval(ge=20)] = 300
    """Seeds whose tasks are looked at."""
    episodes: Annotated[int, Interval(ge=4)] = 150
    """Episodes of well-formed replies. Those of unreadable and adversarial ones come on top."""
    patience: Seconds = 30.0
    """Seconds after which a call counts as hanging."""


QUICK = Effort(seeds=60, episodes=30)
"""For a test suite: about a second for a light environment."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A call into the environment that gave no answer, or none that can be used."""

    rule: str
    """The rule that it breaks."""
    text: str
    cause: str = ""
    """The same for all faults of one cause: the kind of error, and the line that it came from."""
    late: bool = False
    """The call did not return in time."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One reply and what came of it. `kind`: of the reply, `ordinary` for a well-formed one."""

    kind: str
    reply: str
    step: Step


@dataclass(frozen=True, slots=True)
class Played:
    """One episode as far as it was played."""

    task: Task
    member: int
    first: Observation
    exchanges: tuple[Exchange, ...]
    fault: Fault | None = None
    """What broke it off, at the reply after the last exchange."""
    last: tuple[str, str] = ("", "")
    """The kind and the text of the reply that broke it off."""

    @property
    def ended(self) -> bool:
        return bool(self.exchanges) and self.exchanges[-1].step.ending is not None

    @property
    def late(self) -> bool:
        return self.fault is not None and self.fault.late

    def where(self, turn: int | None = None) -> str:
        """The task, and turn number `turn` (from 0) with its reply."""
        if turn is None:
            return _place(self.task, self.member)
        known = [*((each.kind, each.reply) for each in self.exchanges), self.last]
        kind, reply = known[min(turn, len(known) - 1)]
        return f"{_place(self.task, self.member)}, turn {turn + 1}, reply {shortened(reply)} [{kind}]"

    def transcript(self) -> list[str]:
        """Everything the environment said: a line per answer, equal for equal answers."""
        lines = [repr(appearance(self.first))]
        for step in (exchange.step for exchange in self.exchanges):
            said = (step.ending, step.outcome, step.progress, step.actions, step.valid, step.effect, step.state)
            lines.append(repr((appearance(step.observation), sorted(step.rewards.items()), said)))
        return lines


def appearance(observation: Observation) -> tuple[str, ...]:
    """What an observation shows: its texts, and the digests of its pictures."""
    return observation.text, observation.opening, *(image.digest for image in observation.images)


def _place(task: Task, member: int) -> str:
    return f"task {task.id} (seed {task.seed}), member {member}"


ReplySource = Callable[[str, int], tuple[str, str]]
"""(newest observation, turn from 0) -> (kind of reply, reply)."""


class _Late(PassesThrough):
    """Raised by the alarm into the call. No `except Exception` of an environment can swallow it."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise _Late

    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, handler)


@dataclass(slots=True)
class Bench:
    """The environment on the bench: what the rules call it through."""

    env: Any
    effort: Effort
    episodes: int = 0
    replies: int = 0

    def ask(self, call: str, function: Callable[[], Answer]) -> Answer | Fault:
        """The answer of one call, or what went wrong. Raises what is `ABSENT`."""
        try:
            with _at_most(self.effort.patience):
                answer = guarded_call(function)
        except _Late:
            return Fault("text", f"`{call}` did not return within {self.effort.patience:g} s", late=True)
        if isinstance(answer, Answered):
            return answer.value
        error = answer.error
        if isinstance(error, ABSENT):
            raise error
        if isinstance(error, ContractError):
            return Fault(error.rule, str(error))
        if isinstance(error, SystemExit):
            return Fault("text", f"`{call}` ended the process: {str(answer).replace(': ', '(', 1)[:80]})")
        place = f" ({answer.place})" if answer.place else ""
        told = shortened(str(answer), 300, quotes="")
        return Fault("text", f"`{call}` raised {told}{place}", f"{type(error).__name__}{place}")

    def demand(self, call: str, function: Callable[[], Answer], where: str) -> Answer:
        """Like `ask`. Raises Breach where there is no answer."""
        answer = self.ask(call, function)
        if isinstance(answer, Fault):
            raise failed(f"`{call}` is called", answer.text, where)
        return answer

    def task(self, seed: int, env: Any = None) -> Task:
        env = self.env if env is None else env
        return self.demand("task", lambda: checked_task(env.task(seed)), f"seed {seed}")

    def start(self, task: Task, member: int) -> tuple[Any, Observation]:
        """A fresh episode and its first observation."""
        where = _place(task, member)
        episode = self.demand("episode", lambda: checked_episode(self.env.episode()), where)
        first = self.demand("start", lambda: checked_observation(episode.start(task, member)), where)
        self.episodes += 1
        return episode, first

    def step(self, episode: Any, reply: str) -> Step | Fault:
        self.replies += 1
        return self.ask("step", lambda: checked_step(episode.step(reply)))

    def play(self, task: Task, member: int, source: ReplySource, most: int | None = None) -> Played:
        """Play one episode: to its end, two replies beyond its turns, or `most` replies. Raises Breach at the start."""
        episode, first = self.start(task, member)
        exchanges: list[Exchange] = []
        told = first.text
        while len(exchanges) < (min(self.env.turns + 2, MOST_REPLIES) if most is None else most):
            # A source may draw a random answer of the environment.
            kind, reply = self.demand("random_answer", partial(source, told, len(exchanges)), _place(task, member))
            step = self.step(episode, reply)
            if isinstance(step, Fault):
                return Played(task, member, first, tuple(exchanges), step, (kind, reply))
            exchanges.append(Exchange(kind, reply, step))
            if step.ending is not None:
                break
            told = step.observation.text
        return Played(task, member, first, tuple(exchanges))

    def replay(self, played: Played) -> Played:
        """The same task, member and replies once more."""
        replies = [exchange.reply for exchange in played.exchanges]
        return self.play(played.task, played.member, lambda told, turn: ("replayed", replies[turn]), len(replies))


def failed(when: str, found: str, where: str = "") -> Breach:
    """The breach of an environment that cannot even be asked."""
    return Breach(
        f"a call failed when {when}",
        found,
        where,
        expected="an environment that answers whenever it is asked, with values that can be read, compared and shown",
        remedy="mend the call; the other rules are looked at once it answers",
    )
