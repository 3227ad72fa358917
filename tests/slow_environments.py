"""Environments that take their time, as long as a seeded generator says."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from heedful.protocols import Environment, Episode
from heedful.types import Observation, Step, Task


@dataclass
class AtWork:
    """Counts the environments that are at work, and remembers who began and ended."""

    now: int = 0
    most: int = 0
    starts: int = 0
    steps: int = 0
    lock: Lock = field(default_factory=Lock)

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.now -= 1


@dataclass
class Slow:
    """An environment whose every call takes `seconds(rng)`, drawn from a generator of its task and member."""

    inner: Episode
    seconds: Callable[[random.Random], float]
    seed: int
    at_work: AtWork

    def start(self, task: Task, member: int) -> Observation:
        self._rng = random.Random(f"{self.seed} {task.id} {member}")
        with self.at_work:
            self.at_work.starts += 1
            time.sleep(self.seconds(self._rng))
            return self.inner.start(task, member)

    def step(self, response: str) -> Step:
        with self.at_work:
            self.at_work.steps += 1
            time.sleep(self.seconds(self._rng))
            return self.inner.step(response)


def slow(
    env: Environment, seconds: Callable[[random.Random], float], seed: int = 0, at_work: AtWork | None = None
) -> Callable[[], Episode]:
    """Makes the environments of `env`, slowed down."""
    noted = AtWork() if at_work is None else at_work
    return lambda: Slow(env.episode(), seconds, seed, noted)


def up_to(most: float) -> Callable[[random.Random], float]:
    """Uniform seconds."""
    return lambda rng: rng.uniform(0.0, most)
