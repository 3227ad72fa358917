"""Environments in processes of their own: one that crashes or hangs ends its own episodes and nothing else.

Promise: with workers and without, the same episodes to the last byte. A process that dies or takes too long is killed
and replaced; the episodes that it held raise `WorkerDied` or `WorkerTimedOut` at their next step, which a rollout notes
as `Ending.ERROR` with that text; all others go on. Nothing is left running when the pool is closed, or when the process
that holds it ends in whatever way.

A start holds no state: on a process that turns out to be dead already it is repeated on a fresh one. A step is never
repeated. What comes from a worker is JSON, checked as it is read, so an environment cannot run code in the trainer.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from heedful.envs.common.contract import checked_episode, checked_observation, checked_step
from heedful.envs.common.wire import (
    decode,
    encode,
    observation_tree,
    read_observation,
    read_step,
    read_task,
    step_tree,
    task_tree,
)
from heedful.protocols import Environment, Episode
from heedful.types import Observation, Step, Task
from heedful.worker import GRACE, NotBegun, Worker, WorkerDied, WorkerTimedOut

DEFAULT_TIMEOUT = 60.0
"""Seconds for one start or step of an environment in a worker."""

START_ATTEMPTS = 3
"""Processes on which the start of an episode is tried, each of which died before it had begun with it."""


def serve_episodes(pickled: bytes) -> Callable[[bytes], bytes]:
    """The payload of a worker: the episodes of one environment, by number."""
    env: Environment = pickle.loads(pickled)
    episodes: dict[int, Episode] = {}

    def answer(message: bytes) -> bytes:
        request = decode(message)
        for number in request["forget"]:
            episodes.pop(number, None)
        number = request["episode"]
        if "task" in request:
            episode = checked_episode(env.episode())
            observation = checked_observation(episode.start(read_task(request["task"]), request["member"]))
            episodes[number] = episode
            return encode(observation_tree(observation))
        episode = episodes.pop(number)  # one that raises is over
        step = checked_step(episode.step(request["response"]))
        if step.ending is None:
            episodes[number] = episode
        return encode(step_tree(step))

    return answer


class WorkerPool:
    """Processes that play the episodes of one environment; `episode` gives an episode that lives in one of them.

    Many episodes share a process, which serves one request at a time. Safe to use from several threads: requests to
    different processes overlap. A context manager; processes are started when it is made.

    Raises ValueError if the environment cannot be sent to, or not be loaded in, another process.
    """

    def __init__(self, env: Environment, workers: int, timeout: float = DEFAULT_TIMEOUT) -> None:
        """`timeout`: seconds of one start or step, 0 = no limit."""
        self.timeout = timeout
        self._choosing = threading.Lock()
        self._numbers = 0
        pickled = _pickled(env)
        self._places = [_Place(lambda: Worker(serve_episodes, pickled)) for _ in range(workers)]
        self._close = weakref.finalize(self, _end_all, self._places)
        for place in self._places:
            try:
                place.worker.await_ready()
            except NotBegun as dead:
                self.close()
                raise ValueError(
                    f"The environment {env.name} could not be loaded in a worker process: it {dead}. A worker "
                    "imports the module that defines it; without --env-workers it is played in this process."
                ) from dead

    @property
    def replaced(self) -> int:
        """How many processes were replaced so far."""
        return sum(place.replaced for place in self._places)

    def process_ids(self) -> list[int]:
        """Of the processes that serve now."""
        return [place.worker.process_id for place in self._places]

    def episode(self) -> Episode:
        """A fresh, unstarted episode that will live in the process with the fewest."""
        return _HeldEpisode(self)

    def place(self) -> tuple[_Place, int]:
        """A place for a new episode, which counts as held there until it is released, and a number for it."""
        with self._choosing:
            for place in self._places:
                place.settle()
            chosen = min(self._places, key=lambda place: place.held)
            chosen.held += 1
            self._numbers += 1
            return chosen, self._numbers

    def close(self) -> None:
        """End all processes; what was held is lost. May be called twice."""
        self._close()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class IsolatedEnvironment:
    """An environment whose episodes live in worker processes; everything else about it, its tasks too, is as it was."""

    def __init__(self, env: Environment, pool: WorkerPool) -> None:
        self._env = env
        self.pool = pool

    def episode(self) -> Episode:
        return self.pool.episode()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


@contextlib.contextmanager
def isolated(env: Environment, workers: int, timeout: float = DEFAULT_TIMEOUT) -> Iterator[Environment]:
    """The environment itself, or with `workers` > 0 one whose episodes run in processes that end with this context."""
    if workers == 0:
        yield env
        return
    with WorkerPool(env, workers, timeout) as pool:
        yield IsolatedEnvironment(env, pool)


class _HeldEpisode:
    """One episode of which the state lies in a worker process."""

    __slots__ = ("_number", "_place", "_pool", "_worker")

    _number: int
    _worker: Worker

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._place: _Place | None = None

    def start(self, task: Task, member: int) -> Observation:
        place, self._number = self._pool.place()
        self._place = place
        request = {"episode": self._number, "task": task_tree(task), "member": member}
        with place.lock:
            for _ in range(START_ATTEMPTS):
                self._worker = place.living()
                try:
                    return read_observation(decode(place.ask(request, self._pool.timeout, "start")))
                except NotBegun:
                    continue
            raise WorkerDied(
                f"{START_ATTEMPTS} processes in a row were lost before they could start this episode; the last one "
                f"{self._worker.obituary}"
            )

    def step(self, response: str) -> Step:
        place = self._place
        assert place is not None, "an episode begins with start"
        with place.lock:
            if self._worker.obituary:
                lost = WorkerTimedOut if self._worker.timed_out else WorkerDied
                raise lost(f"the process that held this episode {self._worker.obituary}")
            try:
                answer = place.ask({"episode": self._number, "response": response}, self._pool.timeout, "step")
            except NotBegun as dead:
                raise WorkerDied(f"the process that held this episode {dead}") from None
        return read_step(decode(answer))

    def __del__(self) -> None:
        # Runs wherever this is collected, so it takes no lock.
        if self._place is not None:
            self._place.released.append(self._number)


class _Place:
    """One process of a pool, replaced when it dies."""

    def __init__(self, fresh: Callable[[], Worker]) -> None:
        self.worker = fresh()
        self.lock = threading.Lock()
        """Held while its process serves a request."""
        self.held = 0
        self.released: deque[int] = deque()
        """Episodes that nobody plays any more."""
        self.replaced = 0
        self.closed = False
        self._fresh = fresh
        self._forgotten: deque[int] = deque()
        """Released episodes of which its process does not know yet. The next request says so."""

    def living(self) -> Worker:
        """The process, or a fresh one if it is known to be dead."""
        if self.closed:
            raise WorkerDied("the pool of worker processes is closed")
        if self.worker.obituary:
            self.worker = self._fresh()
            self.replaced += 1
        return self.worker

    def ask(self, request: dict[str, Any], timeout: float, what: str) -> bytes:
        forget = [self._forgotten.popleft() for _ in range(len(self._forgotten))]
        return self.worker.ask(encode(request | {"forget": forget}), timeout, what)

    def settle(self) -> None:
        """Take note of the episodes that nobody plays any more."""
        while self.released:
            self._forgotten.append(self.released.popleft())
            self.held -= 1


def _end_all(places: Sequence[_Place]) -> None:
    """End the processes of a pool: first they are asked to, then they are killed."""
    for place in places:
        place.closed = True
        place.worker.interrupt()
    deadline = time.monotonic() + GRACE
    for place in places:
        place.worker.end(max(0.0, deadline - time.monotonic()))


def _pickled(env: Environment) -> bytes:
    """The environment as another process of ours can read it. Raises ValueError."""
    kind = type(env)
    if kind.__module__ == "__main__":
        raise ValueError(
            f"Expected an environment that a worker process can import, but {kind.__qualname__} is defined in the "
            "script that runs. Move it into a module of its own and import it from there."
        )
    try:
        return pickle.dumps(env)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"Expected an environment that can be sent to a worker process, but {kind.__qualname__} cannot be pickled: "
            f"{error}. Its fields should be plain values, and its class should stand at the top of a module."
        ) from error
