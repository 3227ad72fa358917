"""The environment that an environment server serves (`heedful serve-env`), played from here.

Tasks, episodes, demonstrations and scripted players are the same as if the environment were played in this process. A
server that fails costs the episodes that it held, each with an error. Later episodes continue when the server is back.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Annotated, Any

from annotated_types import Len, MinLen

from heedful.boundary import GetsSecret, NamesSecret, Seconds, Share, Wait, settings
from heedful.boundary.foreign_text import brief
from heedful.boundary.http import TOKEN_VARIABLE, ServerRefused, ServerUnreachable, read_token
from heedful.envs.common.tasks import SPLITS
from heedful.envs.common.wire import (
    Tree,
    WireError,
    generator_tree,
    read_generator,
    read_observation,
    read_step,
    read_task,
    task_tree,
)
from heedful.envs.remote.answers import Session, described, field_of
from heedful.envs.remote.server_calls import ServerCalls, check_url
from heedful.types import Observation, Step, Task

_UNKNOWN_SESSION = 404
_PAIRS = Annotated[list[tuple[str, str]], MinLen(1)]
_ONE = Annotated[list[Any], Len(1, 1)]


class ServerLost(ConnectionError):
    """The server that held an episode does not hold it any more."""


@settings
class Remote:
    """Play what an environment server serves. The knobs of the environment are set where it is served.

    The server is started elsewhere, `heedful serve-env frozen_lake --env.slip 0.2`, and asked at `url`. A token that it
    wants is read from HEEDFUL_ENV_TOKEN or from `token_file`, and is never written into a run's configuration.
    """

    url: Annotated[str, GetsSecret(TOKEN_VARIABLE)] = "http://127.0.0.1:8765"
    """Where the server listens."""
    timeout: Seconds = 90.0
    """Seconds for one answer. More than the server's --env-timeout, so that its answer to a slow step arrives."""
    wait: Wait = 60.0
    """Seconds for which a server that is away is waited for before new episodes and tasks fail, too."""
    token_file: Annotated[str, NamesSecret()] = ""
    """A file whose first line is the server's token. Empty = HEEDFUL_ENV_TOKEN, if it is set."""
    imperfect: Share = 0.0
    """Demonstrations: share of turns whose plan is random, where the served environment has this knob."""
    template: Share = 0.0
    """Demonstrations: share of turns whose thought ignores the state, where the served environment has this knob."""

    def __post_init__(self) -> None:
        check_url(self.url)

    @property
    def name(self) -> str:
        return "remote"

    @property
    def served(self) -> dict[str, Tree]:
        """What the server says of the environment: its name, knobs, limits, actions, and a digest of them.

        Raises ServerUnreachable or ServerRefused, with a sentence, where nothing can be learned of it.
        """
        return vars(_host(self).description)

    @property
    def summary(self) -> str:
        return f"{self.served['name']} at {self.url}: {self.served['summary']}"

    @property
    def turns(self) -> int:
        turns: int = self.served["turns"]
        return turns

    def task(self, seed: int) -> Task:
        return _task(_host(self), seed)

    def episode(self) -> RemoteEpisode:
        return RemoteEpisode(_host(self))

    def __getattr__(self, name: str) -> Any:
        """What the served environment offers beyond the contract is offered here, and nothing else."""
        if name in ("actions", "actions_per_turn", "tools"):
            found = self.served[name]
            if found:
                return found if name == "actions_per_turn" else tuple(found)
        elif name == "demonstrate" and name in self.served["offers"]:
            return partial(_demonstration, self)
        elif name in _OFFERS and name in self.served["offers"]:
            return getattr(_host(self), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}: what is served has none.")


_OFFERS = ("random_answer", "blind_answers", "right_actions")


class _Host:
    """A server and the environment that it served when it was first asked."""

    def __init__(self, calls: ServerCalls) -> None:
        self.calls = calls
        self.abandoned: deque[str] = deque()
        """Sessions that are no longer played. The next request that opens one closes them."""
        self.description = described(calls.call("GET", "/environment"), calls.url)

    def field(self, answer: Tree, name: str, kind: Any) -> Any:
        return field_of(answer, name, self.calls.url, kind)

    def random_answer(self, task: Task, rng: random.Random) -> str:
        answer: str = self.field(self.drawing("/random-answer", task, rng, {}), "answer", str)
        return answer

    def blind_answers(self, tasks: Sequence[Task]) -> list[str]:
        answer = self.calls.call("POST", "/blind-answers", {"tasks": list(map(task_tree, tasks))}, waits=True)
        texts: list[str] = self.field(answer, "answers", list[str])
        return texts

    def right_actions(self, task: Task, before: Sequence[Sequence[str]] = ()) -> Any:
        body: dict[str, Tree] = {"task": task_tree(task), "before": [list(turn) for turn in before]}
        return self.calls.call("POST", "/right-actions", body, waits=True).get("actions")

    def drawing(self, path: str, task: Task, rng: random.Random, more: dict[str, Tree]) -> Tree:
        """The answer to a request that draws from `rng`, which moves on as if it had been drawn from here."""
        body = {"task": task_tree(task), "rng": generator_tree(rng), **more}
        answer = self.calls.call("POST", path, body, waits=True)
        rng.setstate(read_generator(self.field(answer, "rng", Any)).getstate())
        return answer


class RemoteEpisode:
    """One episode whose state is held by the server."""

    __slots__ = ("_host", "_session", "_turn")

    def __init__(self, host: _Host) -> None:
        self._host = host
        self._session = ""
        self._turn = 0

    def start(self, task: Task, member: int) -> Observation:
        """Raises ServerUnreachable where the server stays away, RaisedElsewhere for what the environment raised."""
        host = self._host
        body = {
            "task": task_tree(task),
            "member": member,
            "key": uuid.uuid4().hex,
            "digest": host.description.digest,
            "close": [host.abandoned.popleft() for _ in range(len(host.abandoned))],
        }
        answer = host.calls.call("POST", "/sessions", body, waits=True)
        self._session = host.field(answer, "session", Session)
        return read_observation(answer.get("observation"))

    def step(self, response: str) -> Step:
        """Raises ServerLost where the server, or its memory of this episode, is gone."""
        body = {"response": response, "turn": self._turn}
        try:
            answer = self._host.calls.call("POST", f"/sessions/{self._session}/step", body)
        except (ServerUnreachable, ServerRefused) as error:
            if isinstance(error, ServerRefused):
                if error.status != _UNKNOWN_SESSION:
                    raise
                self._session = ""
            raise ServerLost(f"{str(error).removesuffix('.')}. It held this episode, which is lost.") from error
        self._turn += 1
        step = read_step(self._host.field(answer, "step", dict[str, Any]))
        if step.ending is not None:
            self._leave()
        return step

    def _leave(self) -> None:
        if self._session:
            self._host.abandoned.append(self._session)
            self._session = ""

    def __del__(self) -> None:
        # Runs wherever this is collected, so it only leaves a note.
        self._leave()


def _demonstration(remote: Remote, task: Task, rng: random.Random) -> list[tuple[str, str]]:
    """The served solver's."""
    faults = {knob: value for knob in ("imperfect", "template") if (value := getattr(remote, knob))}
    host = _host(remote)
    pairs: list[tuple[str, str]] = host.field(host.drawing("/demonstrate", task, rng, faults), "pairs", _PAIRS)
    return pairs


def _host(remote: Remote) -> _Host:
    return _host_at(remote.url, remote.timeout, remote.wait, remote.token_file, read_token(remote.token_file))


@lru_cache(maxsize=16)
def _host_at(url: str, timeout: float, wait: float, token_file: str, token: str) -> _Host:
    """What this process shares of one server. Not kept if it could not be reached."""
    return _Host(ServerCalls(url, timeout, wait, token))


@lru_cache(maxsize=2**16)
def _task(host: _Host, seed: int) -> Task:
    answer = host.calls.call("POST", "/tasks", {"seeds": [seed]}, waits=True)
    (tree,) = host.field(answer, "tasks", _ONE)
    task = read_task(tree)
    if task.split not in SPLITS:  # no split would ever have enough of them
        raise WireError(
            f"Expected a task of {', '.join(SPLITS)} of the server at {host.calls.url}, found {brief(task.split)}."
        )
    return task
