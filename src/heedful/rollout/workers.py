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
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from heedful.boundary.limits import MOST_AT_ONCE, MOST_SECONDS, number_of, whole_number
from heedful.envs.transport.wire import Line, Tree, WireError, decode, encode, read_observation, read_step, task_tree
from heedful.guarded import RaisedElsewhere
from heedful.protocols import Environment, Episode
from heedful.rollout.worker_process import PROGRAM
from heedful.types import Observation, Step, Task

DEFAULT_TIMEOUT = 60.0
"""Seconds for one start or step of an environment in a worker."""

LOADING_LIMIT = 300.0
"""Seconds in which a fresh process must have loaded the environment."""

START_ATTEMPTS = 3
"""Processes on which the start of an episode is tried, each of which died before it had begun with it."""

_GRACE = 5.0
"""Seconds that processes are given to end by themselves when the pool is closed."""


class WorkerDied(RuntimeError):
    """The process that held an episode is gone, and the episode with it."""


class WorkerTimedOut(RuntimeError):
    """The process that held an episode was killed because a request took too long."""


class _NotBegun(Exception):
    """The process was dead before it began with a request."""


class WorkerPool:
    """Processes that play the episodes of one environment; `episode` gives an environment that lives in one of them.

    Many episodes share a process, which serves one request at a time. Safe to use from several threads: requests to
    different processes overlap. A context manager; processes are started when it is made.

    Raises ValueError if the environment cannot be sent to, or not be loaded in, another process.
    """

    def __init__(self, env: Environment, workers: int, timeout: float = DEFAULT_TIMEOUT) -> None:
        if not 1 <= whole_number("workers", workers) <= MOST_AT_ONCE:
            raise ValueError(f"A pool has 1 to {MOST_AT_ONCE} worker processes, found {workers}.")
        check_timeout(timeout)
        self._choosing = threading.Lock()
        self._numbers = 0
        pickled = _pickled(env)
        self._places = [_Place(_Worker(pickled, timeout), lambda: _Worker(pickled, timeout)) for _ in range(workers)]
        self._close = weakref.finalize(self, _end_all, self._places)
        for place in self._places:
            try:
                place.worker.await_ready()
            except _NotBegun as dead:
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


def check_timeout(timeout: float) -> None:
    """Raise unless it is a number of seconds, or 0 for no limit."""
    if not 0.0 <= number_of("env_timeout", timeout) <= MOST_SECONDS:
        raise ValueError(
            f"env_timeout must be a number of seconds of at least 0 (0 = no limit) and at most {MOST_SECONDS:,}, "
            f"found {timeout}."
        )


class _HeldEpisode:
    """One episode of which the state lies in a worker process."""

    __slots__ = ("_number", "_place", "_pool", "_worker")

    _number: int
    _worker: _Worker

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
                    return read_observation(self._worker.ask(request, "start")["observation"])
                except _NotBegun:
                    continue
            raise WorkerDied(
                f"{START_ATTEMPTS} processes in a row were lost before they could start this episode; the last one "
                f"{self._worker.obituary}"
            )

    def step(self, response: str) -> Step:
        if self._place is None:
            raise RuntimeError("Expected an episode that has started, found one that has not. Call start first.")
        with self._place.lock:
            try:
                answer = self._worker.ask({"episode": self._number, "response": response}, "step")
            except _NotBegun as dead:
                lost = WorkerTimedOut if self._worker.timed_out else WorkerDied
                raise lost(f"the process that held this episode {dead}") from None
        return read_step(answer["step"])

    def __del__(self) -> None:
        # Runs wherever this is collected, so it takes no lock.
        if self._place is not None:
            self._place.released.append((getattr(self, "_worker", None), self._number))


class _Place:
    """One process of a pool, replaced when it dies."""

    def __init__(self, worker: _Worker, fresh: Callable[[], _Worker]) -> None:
        self.worker = worker
        self.lock = threading.Lock()
        """Held while its process serves a request."""
        self.held = 0
        self.released: deque[tuple[_Worker | None, int]] = deque()
        self.replaced = 0
        self.closed = False
        self._fresh = fresh

    def living(self) -> _Worker:
        """The process, or a fresh one if it is known to be dead."""
        if self.closed:
            raise WorkerDied("the pool of worker processes is closed")
        if self.worker.obituary:
            self.worker = self._fresh()
            self.replaced += 1
        return self.worker

    def settle(self) -> None:
        """Take note of the episodes that nobody plays any more."""
        while self.released:
            worker, number = self.released.popleft()
            self.held -= 1
            if worker is not None:
                worker.forgotten.append(number)


class _Worker:
    """One process and the line to it. For one thread at a time, but for `interrupt` and `forgotten`."""

    def __init__(self, env: bytes, timeout: float) -> None:
        self.obituary = ""
        """How it ended, as a clause; empty while it is not known to have ended."""
        self.timed_out = False
        self.forgotten: deque[int] = deque()
        self._timeout = timeout
        self._ready = False
        self._asking = False
        ours, theirs = socket.socketpair()
        watched, self._lifeline = os.pipe()
        words = [str(theirs.fileno()), str(watched), str(timeout), *sys.path]
        try:
            # A group of its own: Ctrl-C in a terminal is for the trainer, and what an environment starts dies with it.
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *words],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), watched),
                process_group=0,
            )
        finally:
            theirs.close()
            os.close(watched)
        self._socket = ours
        self._line = Line(ours)
        with contextlib.suppress(EOFError, TimeoutError):  # if it is dead already, `await_ready` will say so
            self._line.send(env, time.monotonic() + LOADING_LIMIT)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def await_ready(self) -> None:
        """Wait until it has loaded the environment. Raises _NotBegun if it does not."""
        if self._ready:
            return
        try:
            answer = decode(self._line.receive(time.monotonic() + LOADING_LIMIT))
        except TimeoutError:
            self._bury(f"had not loaded the environment after {LOADING_LIMIT:g} s and was killed")
        except (EOFError, WireError):
            self._bury(f"died while it loaded the environment ({self._status()})")
        else:
            self._ready = "ready" in answer
            if not self._ready:
                self._bury(f"could not load the environment: {answer['raised']}")
        if not self._ready:
            raise _NotBegun(self.obituary)

    def ask(self, request: dict[str, Tree], what: str) -> dict[str, Tree]:
        """Have it answer one request, a `what`.

        Raises _NotBegun, WorkerDied, WorkerTimedOut, or RaisedElsewhere for what the environment raised.
        """
        if self._asking:  # an interrupt came between a request and its answer: the line is out of step
            self._bury("was interrupted over a request and was ended")
        if self.obituary:
            raise _NotBegun(self.obituary)
        self._asking, begun = True, False
        self.await_ready()
        deadline = time.monotonic() + self._timeout if self._timeout else None
        try:
            self._line.send(encode(request | {"forget": self._forget()}), deadline)
            self._line.receive(deadline)
            begun = True
            answer = decode(self._line.receive(deadline))
        except TimeoutError:
            self.timed_out = True
            self._bury(f"took longer than {self._timeout:g} s over a {what} and was killed")
            raise WorkerTimedOut(f"this {what} took longer than {self._timeout:g} s; its process was killed") from None
        except EOFError:
            status = self._status()
            self._bury(f"died over a {what} ({status})" if begun else f"died between two requests ({status})")
            if begun:
                raise WorkerDied(f"the process died over this {what} ({status})") from None
            raise _NotBegun(self.obituary) from None
        except WireError as error:
            self._bury(f"answered a {what} with something that is no answer and was ended")
            raise WorkerDied(f"the process was ended, since its answer to this {what} was none: {error}") from error
        self._asking = False
        if "raised" in answer:
            raise RaisedElsewhere(answer["raised"])
        return answer

    def interrupt(self) -> None:
        """Break the line, from whatever thread: whoever waits for an answer gets none, and the process ends."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self, deadline: float) -> None:
        """Wait for an interrupted process to end by itself, and kill it at the deadline; at once if it is at work."""
        if self._asking:
            deadline = 0.0
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        self._bury("was ended with its pool")

    def _forget(self) -> list[int]:
        return [self.forgotten.popleft() for _ in range(len(self.forgotten))]

    def _status(self) -> str:
        """How it ended, once it has closed its end of the line."""
        try:
            code = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return "it closed its line"
        if code >= 0:
            return f"exit status {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"{name}, from outside or out of memory" if name == "SIGKILL" else name

    def _bury(self, obituary: str) -> None:
        """Kill the process, and what it has started, if they still run."""
        if self.obituary:
            return
        self.obituary = obituary
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._lifeline)
        self._line.close()


def _end_all(places: Sequence[_Place]) -> None:
    """End the processes of a pool: first they are asked to, then they are killed."""
    for place in places:
        place.closed = True
        place.worker.interrupt()
    deadline = time.monotonic() + _GRACE
    for place in places:
        place.worker.end(deadline)


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
