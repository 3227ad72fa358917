"""OpenEnv: an environment behind a server that speaks OpenEnv's protocol, one session for each episode.

Every failure ends the episode with an error: no server, no free session, a timeout, a lost connection, an error of the
environment. A session is never restarted in the middle of an episode.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from annotated_types import Interval

from heedful.boundary import Count, Seconds, Text
from heedful.envs.common import (
    BaseEnvironment,
    Instructions,
    Played,
    Raised,
    Turns,
    answer_fault_line,
    free_text_rules,
    guarded_call,
    read_answer,
    task_of,
)
from heedful.types import Observation, Task
from heedful_envs.adapters.library import HoldingEpisode, ending_of, load_library, read_options

Answer = TypeVar("Answer")

NOT_SHOWN = ("done", "reward", "metadata")
"""Fields of an observation that are no part of what the agent reads."""

LARGEST_SEED = 2**31


class ServerError(ConnectionError):
    """The server, or the way to it, failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEnv(BaseEnvironment):
    """An environment served by OpenEnv: text in, text out, over a WebSocket.

    Reward components: `game`, what the server paid for the step, and `format`. An episode ends when the server says
    `done`. Its outcome is then the reward, divided by `full` and clipped to [0, 1], so that 1 is success. One that the
    server has not ended within the turns has outcome 0. An action that the server's schema refuses is the agent's fault
    and spends the turn. Any other error ends the episode as an environment error.
    """

    name: ClassVar[str] = "openenv"
    package: ClassVar[str] = "openenv"
    """The package that is played."""

    url: str = "http://127.0.0.1:8000"
    """Where the server listens. It needs room for as many sessions as episodes are played at once."""
    action_field: Text = "message"
    """The field of the server's action that takes the text of an answer."""
    action: str = ""
    """Further fields of every action, as name=value with spaces between, or as JSON."""
    observation_field: str = ""
    """The field of the observation that the agent reads; empty: all but done, reward and metadata."""
    reset: str = ""
    """What is passed to the server's reset besides the seed, as name=value with spaces between, or as JSON."""
    rules: str = ""
    """What the agent is told before the first observation: most servers do not say what is to be done."""
    judged_by: Literal["last", "sum"] = "last"
    """The reward that decides the outcome: that of the last step, or of all steps together."""
    full: Annotated[float, Interval(gt=0, lt=math.inf)] = 1.0
    """The reward that counts as full success."""
    identity: Literal["observation", "seed"] = "observation"
    """What makes two tasks the same. observation: equal first observations (the server must follow its seed); seed: the
    seed alone, for servers that ignore it (splits may then share start states)."""
    words: tuple[str, ...] = ("yes", "no", "1", "2", "look")
    """What a random player answers, and what the best input-blind player is searched over."""
    turns: Turns = 8
    longest: Count = 4_096
    """Most characters of an answer."""
    timeout: Seconds = 60.0
    """Seconds that the server may take for an answer."""
    instructions: Instructions = "full"
    """`full`: rules and form of an answer in the first observation. `brief`: the limits alone."""

    def check(self) -> None:
        read_options(self.name, "action", self.action)
        read_options(self.name, "reset", self.reset)
        if not self.words:
            raise ValueError("openenv: words must hold at least one answer of a random player, but is empty.")

    @property
    def summary(self) -> str:
        return f"An environment behind an OpenEnv server, here {self.url}."

    def task(self, seed: int) -> Task:
        """The task of a seed. Asks the server for its first observation, unless `identity` is seed."""
        if self.identity == "seed":
            return task_of(self.name, f"{self.reset}\nseed {seed}", seed)
        return task_of(self.name, f"{self.reset}\n{_first_observation(self, seed)}", seed)

    def episode(self) -> OpenEnvEpisode:
        return OpenEnvEpisode(self)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        return rng.choice(self.words)

    def blind_answers(self, tasks: Sequence[Task]) -> list[str]:
        return list(dict.fromkeys(self.words))

    def full_rules(self) -> str:
        told = f"{self.rules}\n" if self.rules else ""
        form = f"An answer is a text of at most {self.longest} characters."
        return f"{told}{free_text_rules(form, 'your answer', self.turns)}\n"


class OpenEnvEpisode(HoldingEpisode[OpenEnv]):
    """One episode of `OpenEnv`, in its own session."""

    __slots__ = ("_total",)

    held: Session

    def start(self, task: Task, member: int) -> Observation:
        """Raises ServerError, or ValueError where the server draws another start state for the task's seed."""
        return self.first(self.begin(task, member))

    def begin(self, task: Task, member: int) -> str:
        env = self.env
        self._total, self.held = 0.0, Session(env)
        text = self.held.reset(task.seed)
        if env.identity == "observation" and task_of(env.name, f"{env.reset}\n{text}", task.seed).id != task.id:
            raise ValueError(
                f"openenv: the server at {env.url} shows another first observation for seed {task.seed} than "
                f"the one that {task.id} names: it does not follow its seed, or it is another server. Set "
                "--env.identity seed to let the seed alone name a task."
            )
        return self._show(text)

    def play(self, response: str) -> Played:
        env = self.env
        read = read_answer(response, env.longest)
        answered = Answered("", refused=read.fault) if read.fault else self.held.step(read.text)
        fault, paid = answered.refused, answered.reward
        note = answer_fault_line(read, env.brief)
        if fault and not read.fault:
            note = "invalid action\n" if env.brief else f"Your last reply was invalid: {fault}.\n"
        self._total += paid
        judged = paid if env.judged_by == "last" else self._total
        outcome = min(1.0, max(0.0, judged / env.full)) if answered.done else 0.0
        over = answered.done or not self.turns_left
        if over:
            self.close()
        return Played(
            fault=fault,
            rewards={} if fault else {"game": paid},
            ending=ending_of(outcome, answered.done) if over else None,
            outcome=outcome,
            actions=(" ".join(read.text.split()),) if read.text else (),
            note=note,
            shown=self._show(answered.text),
            effect=" ".join((fault or f"paid {paid:g}{', done' if answered.done else ''}").split()),
        )

    def _show(self, text: str) -> str:
        return f"{self.limits()}\n{text}".rstrip()


@dataclass(frozen=True, slots=True)
class Answered:
    """What the server answered to one action."""

    text: str
    reward: float = 0.0
    done: bool = False
    refused: str = ""
    """Why the action does not fit the server's schema. Empty if it does."""


class Session:
    """One session with the server. Every failure raises ServerError with a sentence."""

    def __init__(self, env: OpenEnv) -> None:
        self._env = env
        kind = _client_class()
        self._client = kind(base_url=env.url, message_timeout_s=env.timeout).sync()
        self._asked(self._client.connect)

    def reset(self, seed: int) -> str:
        """The first observation of the episode that a seed draws."""
        options = read_options(self._env.name, "reset", self._env.reset)
        result = self._asked(lambda: self._client.reset(seed=seed % LARGEST_SEED, **options))
        return _text_of(result.observation, self._env)

    def step(self, text: str) -> Answered:
        """Act. An action that the server's schema refuses is answered with a reason."""
        action = {**read_options(self._env.name, "action", self._env.action), self._env.action_field: text}
        try:
            result = self._asked(lambda: self._client.step(action))
        except ServerError as error:
            if "VALIDATION_ERROR" in str(error):
                return Answered("", refused="the server refused the answer as an action")
            raise
        paid = self._asked(lambda: float(result.reward or 0.0))
        return Answered(_text_of(result.observation, self._env), paid, bool(result.done))

    def close(self) -> None:
        """Tell the server that the session is over. A session that is gone already is not an error."""
        with contextlib.suppress(ServerError):
            self._asked(self._client.close)

    def _asked(self, question: Callable[[], Answer]) -> Answer:
        answer = guarded_call(question)
        if isinstance(answer, Raised):
            raise ServerError(f"openenv: the server at {self._env.url} failed: {answer}") from answer.error
        return answer.value


@lru_cache(maxsize=1)
def _client_class() -> Any:
    """OpenEnv's client for plain JSON, kept from connecting a second time: a new session would be a new episode."""
    library = load_library("openenv")

    class OneSession(library.GenericEnvClient):  # type: ignore[name-defined]
        _begun = False

        async def _connect_async(self) -> Any:
            lost = self._ws is None or self._ws.state.name in ("CLOSING", "CLOSED")
            if self._begun and lost:
                raise ConnectionError("the connection was lost in the middle of an episode")
            connected = await super()._connect_async()
            self._begun = True
            return connected

    return OneSession


@lru_cache(maxsize=16_384)
def _first_observation(env: OpenEnv, seed: int) -> str:
    session = Session(env)
    try:
        return session.reset(seed)
    finally:
        session.close()


def _text_of(observation: object, env: OpenEnv) -> str:
    """What the agent reads of an observation: one field, or all that are shown."""
    if not isinstance(observation, Mapping):
        return str(observation)
    if env.observation_field:
        if env.observation_field not in observation:
            raise ServerError(
                f"openenv: the observation has no field {env.observation_field!r}; it has "
                f"{', '.join(map(str, observation))}. Set --env.observation-field to one of them."
            )
        return _plain(observation[env.observation_field])
    shown = {name: value for name, value in observation.items() if name not in NOT_SHOWN}
    if len(shown) == 1:
        return _plain(next(iter(shown.values())))
    return "\n".join(f"{name}: {_plain(value)}" for name, value in shown.items())


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
