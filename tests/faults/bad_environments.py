"""Echo, on some of whose steps something goes wrong: importable by worker processes and from the command line."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from heedful.envs.toys.echo import Echo
from heedful.types import Observation, Step, Task

Wrong = Callable[[Step], Step]


class _Sometimes:
    """An episode that goes wrong for about every third task and member."""

    def __init__(self, episode: Any, wrong: Wrong) -> None:
        self._episode, self._wrong = episode, wrong
        self._is_bad = False

    def start(self, task: Task, member: int) -> Observation:
        self._is_bad = zlib.crc32(f"{task.id} {member}".encode()) % 3 == 0
        found: Observation = self._episode.start(task, member)
        return found

    def step(self, response: str) -> Step:
        step: Step = self._episode.step(response)
        return self._wrong(step) if self._is_bad else step


def _hang(step: Step) -> Step:
    time.sleep(1e6)
    return step


@dataclass(frozen=True, kw_only=True)
class Hangs(Echo):
    name = "echo_hangs"

    def episode(self) -> Any:
        return _Sometimes(super().episode(), _hang)


@dataclass(frozen=True, kw_only=True)
class PaysNan(Echo):
    name = "echo_pays_nan"

    def episode(self) -> Any:
        return _Sometimes(super().episode(), lambda step: replace(step, rewards={"answer": float("nan")}))
