"""How a check plays an environment that may do anything: raise, hang, or return what no contract allows.

Every call into the environment is timed, and limited in time if the platform allows it. A failure is data. This module
does not judge: it hands the episodes to the rules.

The time limit needs the main thread and `signal.setitimer` (Linux, macOS). Elsewhere a call that hangs, hangs.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from itertools import islice
from types import FrameType
from typing import Any, Literal, TypeVar

from heedful.boundary.limits import MOST_AT_ONCE, MOST_EPISODES, refuse_above, refuse_below, refuse_seconds
from heedful.envs.checking.pixels import appearance
from heedful.envs.checking.report import in_words, seconds_text, shortened
from heedful.envs.transport.images import IMAGES_WANTED, images_fault
from heedful.envs.transport.wire import LONGEST_TEXT
from heedful.guarded import PassesThrough, Raised, guarded_call
from heedful.types import Observation, Step, Task

Answer = TypeVar("Answer")

MOST_REPLIES = 2000
"""Replies after which an episode is played no further, however many turns it may have."""

MOST_REWARDS = 1000
"""Names of rewards that a step may have."""

Call = Literal["members", "task", "episode", "start", "step", "demonstrate", "random_answer", "blind_answers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is played, and how long a call may take."""

    seeds: int = 300
    """Seeds whose tasks are looked at."""
    episodes: int = 150
    """Episodes of well-formed replies. Those of unreadable and adversarial ones come on top."""
    processes: int = 12
    """Other processes, each with another seed of Python's string hash, in which tasks and episodes must be the same."""
    slowest: float = 1.0
    """Seconds. A reply of ordinary length that takes longer gets a warning."""
    patience: float = 30.0
    """Seconds after which a call counts as hanging."""

    def __post_init__(self) -> None:
        refuse_below(self, seeds=20, episodes=4, processes=0)
        refuse_above(self, seeds=MOST_EPISODES, episodes=MOST_EPISODES, processes=MOST_AT_ONCE)
        refuse_seconds(self, "slowest", "patience")


QUICK = Effort(seeds=60, episodes=30, processes=4)
"""For a test suite: about a second for a light environment."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A call into the environment that gave no answer, or none that can be used."""

    call: Call
    kind: Literal["raised", "late", "type"]
    text: str
    cause: str = ""
    """The same for all faults of one cause: the kind of error, and the line that it came from."""
    error: BaseException | None = field(default=None, compare=False)
    """What was raised."""

    def __str__(self) -> str:
        return self.text


class Broke(Exception):
    """Raised to a rule where a call failed on which everything after it rests."""

    def __init__(self, fault: Fault, where: str) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.where = where


@dataclass(frozen=True, slots=True)
class Exchange:
    """One reply and what came of it."""

    kind: str
    """The kind of the reply. `ordinary` for a well-formed one."""
    reply: str
    step: Step
    seconds: float


@dataclass(frozen=True, slots=True)
class Played:
    """One episode as far as it was played."""

    task: Task
    member: int
    first: Observation
    exchanges: tuple[Exchange, ...]
    fault: Fault | None = None
    """What broke it off, at the reply after the last exchange."""
    last_kind: str = ""
    last_reply: str = ""
    """The reply that broke it off."""

    @property
    def ended(self) -> bool:
        return bool(self.exchanges) and self.exchanges[-1].step.ending is not None

    @property
    def replies(self) -> list[str]:
        return [exchange.reply for exchange in self.exchanges]

    @property
    def observations(self) -> list[str]:
        """What the agent was shown, in order. The observation of the ending is not shown."""
        return [self.first.text, *(one.step.observation.text for one in self.exchanges if one.step.ending is None)]

    @property
    def solved(self) -> bool:
        return self.ended and self.exchanges[-1].step.outcome == 1.0

    def where(self, turn: int | None = None) -> str:
        """The task, and turn number `turn` (from 0) with its reply."""
        place = _place(self.task, self.member)
        if turn is None:
            return place
        reply = self.last_reply if turn >= len(self.exchanges) else self.exchanges[turn].reply
        kind = self.last_kind if turn >= len(self.exchanges) else self.exchanges[turn].kind
        return f"{place}, turn {turn + 1}, reply {shortened(reply)} [{kind}]"

    def transcript(self) -> list[str]:
        """Everything the environment said, in a form that can be compared over processes."""
        return [repr(_told(self.first)), *(written(one.step) for one in self.exchanges)]


def _place(task: Task, member: int) -> str:
    return f"task {task.id} (seed {task.seed}), member {member}"


def parting(one: Sequence[str], two: Sequence[str]) -> int | None:
    """The place where two transcripts part (0 = the first observation). `None` if they are equal."""
    places = range(max(len(one), len(two)))
    return next((at for at in places if one[at : at + 1] != two[at : at + 1]), None)


ReplySource = Callable[[str, int], tuple[str, str]]
"""(newest observation, turn from 0) -> (kind of reply, reply)."""


def made_anew(env: Any) -> Any:
    """An equal environment, made by its constructor again. The same object if it is not a dataclass."""
    return dataclasses.replace(env) if is_dataclass(env) and not isinstance(env, type) else env


def scripted(replies: Sequence[str]) -> ReplySource:
    """The replies of an episode that was played before."""
    return lambda observation, turn: ("replayed", replies[turn])


def written(step: Step) -> str:
    """A step as one line that is equal for equal steps."""
    rewards = sorted((repr(name), repr(value)) for name, value in dict(step.rewards).items())
    shown = _told(step.observation)
    said = (step.ending, step.outcome, step.progress, step.actions, step.valid, step.effect, step.state)
    return repr((shown, rewards, said))


def _told(observation: Observation) -> tuple[str, ...]:
    text, *pictures = appearance(observation)
    return text, observation.opening, *pictures


class _Late(PassesThrough):
    """Raised by the alarm into the call. No `except Exception` of an environment can swallow it."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
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
    origin: str = ""
    """`module:factory` that made the environment, if that is known and no knob was changed since."""
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """What each call took, by its name."""
    episodes: int = 0
    replies: int = 0

    @property
    def turns(self) -> int:
        return int(self.env.turns)

    def ask(self, call: Call, function: Callable[[], Answer]) -> tuple[Answer | None, Fault | None]:
        """The answer of one call, or what went wrong."""
        took = self.effort.patience
        try:
            with _at_most(self.effort.patience):
                began = time.perf_counter()
                answer = guarded_call(function)
                took = time.perf_counter() - began
        except _Late:
            limit = seconds_text(self.effort.patience)
            return None, Fault(call, "late", f"`{call}` did not return within {limit}")
        finally:
            self.seconds[call].append(took)
        if isinstance(answer, Raised) and isinstance(answer.error, SystemExit):
            code = answer.error.code
            told = code if isinstance(code, int | None) else in_words(code)
            return None, Fault(call, "raised", f"`{call}` ended the process: SystemExit({told})")
        if isinstance(answer, Raised):
            place = f" ({answer.place})" if answer.place else ""
            cause = f"{type(answer.error).__name__}{place}"
            return None, Fault(call, "raised", f"`{call}` raised {_one_line(str(answer))}{place}", cause, answer.error)
        return answer.value, None

    def demand(self, call: Call, function: Callable[[], Answer], where: str) -> Answer:
        """Like `ask`. Raises Broke where there is no answer."""
        answer, fault = self.ask(call, function)
        if fault is not None:
            raise Broke(fault, where)
        return answer  # type: ignore[return-value]  # without a fault there is an answer

    def task(self, seed: int, env: Any = None) -> Task:
        env = self.env if env is None else env
        found = self.demand("task", lambda: env.task(seed), f"seed {seed}")
        if not isinstance(found, Task):
            raise Broke(Fault("task", "type", f"`task` returned {in_words(found)}, not a Task"), f"seed {seed}")
        return found

    def start(self, task: Task, member: int) -> tuple[Any, Observation]:
        """A fresh episode and its first observation."""
        where = _place(task, member)
        episode: Any = self.demand("episode", lambda: self.env.episode(), where)
        missing = self.demand(
            "episode", lambda: [name for name in ("start", "step") if not callable(getattr(episode, name, None))], where
        )
        if missing:
            text = f"`episode` returned {in_words(episode)}, which has no `{'` and no `'.join(missing)}`"
            raise Broke(Fault("episode", "type", text), where)
        first = self.demand("start", lambda: _with_misfit(episode.start(task, member), _misfit), where)
        if first.misfit:
            raise Broke(Fault("start", "type", f"`start` returned {first.misfit}"), where)
        self.episodes += 1
        return episode, first.value

    def step(self, episode: Any, reply: str) -> tuple[Step | None, float, Fault | None]:
        self.replies += 1
        answer, fault = self.ask("step", lambda: _with_misfit(episode.step(reply), _step_misfit))
        took = self.seconds["step"].pop()
        if answer is None:
            return None, took, fault
        if answer.misfit:
            return None, took, Fault("step", "type", f"`step` returned {answer.misfit}")
        return answer.value, took, None

    def play(self, task: Task, member: int, source: ReplySource, most: int | None = None) -> Played:
        """Play one episode: to its end, two replies beyond its turns, or `most` replies. Raises Broke at the start."""
        episode, first = self.start(task, member)
        exchanges: list[Exchange] = []
        shown = first.text
        while len(exchanges) < (min(self.turns + 2, MOST_REPLIES) if most is None else most):
            # A source may draw a random answer of the environment.
            kind, reply = self.demand("random_answer", partial(source, shown, len(exchanges)), _place(task, member))
            step, seconds, fault = self.step(episode, reply)
            if step is None:
                return Played(task, member, first, tuple(exchanges), fault, kind, reply)
            exchanges.append(Exchange(kind, reply, step, seconds))
            if step.ending is not None:
                break
            shown = step.observation.text
        return Played(task, member, first, tuple(exchanges))

    def replay(self, played: Played) -> Played:
        """The same task, member and replies once more."""
        return self.play(played.task, played.member, scripted(played.replies), len(played.exchanges))


@dataclass(frozen=True, slots=True)
class _Looked:
    """An answer, and what is wrong with it. To look at it runs code of the environment, and is a part of the call."""

    value: Any
    misfit: str


def _with_misfit(value: Any, misfit: Callable[[object], str]) -> _Looked:
    return _Looked(value, misfit(value))


def _misfit(observation: object) -> str:
    """What is wrong with an observation. Empty if nothing is."""
    if not isinstance(observation, Observation):
        return f"{in_words(observation)}, not an Observation"
    for name in ("text", "opening"):
        if not isinstance(getattr(observation, name), str):
            return f"an Observation whose {name} is {in_words(getattr(observation, name))}, not text"
        if len(getattr(observation, name)) > LONGEST_TEXT:
            found = len(getattr(observation, name))
            return f"an Observation whose {name} has {found:,} characters; expected at most {LONGEST_TEXT:,}"
    fault = images_fault(observation.images)
    if fault:
        return f"an Observation with pictures of which one is {fault}; expected {IMAGES_WANTED}"
    if observation.role not in ("user", "tool"):
        return f"an Observation whose role is {in_words(observation.role)}, neither user nor tool"
    return ""


def _step_misfit(step: object) -> str:
    """What is wrong with a step, so that nothing could be read off it. Empty if nothing is."""
    if not isinstance(step, Step):
        return f"{in_words(step)}, not a Step"
    if not isinstance(step.rewards, Mapping):
        return f"a Step whose rewards are {in_words(step.rewards)}, not a mapping of names to numbers"
    named = len(list(islice(step.rewards.items(), MOST_REWARDS + 1)))
    if named > MOST_REWARDS:
        return f"a Step with more than {MOST_REWARDS:,} rewards"
    return _misfit(step.observation)


def _one_line(text: str) -> str:
    return shortened(text, 200)[1:-1] if len(text) <= 200 else shortened(text, 200)
