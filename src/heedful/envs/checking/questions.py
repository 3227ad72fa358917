"""What another process of a check is asked. It imports little, since each of these processes loads it anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heedful.types import Task


@dataclass(frozen=True, slots=True)
class Request:
    """The work of another process, sent as a pickle."""

    env: bytes
    """Pickled. Empty if `origin` makes it."""
    origin: str
    seeds: tuple[int, ...]
    episodes: tuple[tuple[Task, int, tuple[str, ...]], ...]
    """(task, member, replies)."""
    backwards: bool = False
    later: float = 0.0
    """Seconds that its clock is ahead."""


def listed(task: Task) -> list[Any]:
    """A task as JSON knows it."""
    return [task.id, task.seed, task.split, list(task.tags)]
