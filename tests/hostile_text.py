"""An environment whose every text holds what a terminal obeys, for the test of what commands print."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from heedful.types import Ending, Observation, Step, Task

NASTY = "\x1b]0;owned\x07\x1b[2J\x9b5m\u202egnp\u2066\u200b\r\b\ud800[/red]"
"""Sets the title, clears the screen, turns the line around, hides, overwrites, and cannot be encoded."""


@dataclass(frozen=True)
class Hostile:
    """Everything that it says is hostile. `mood`: what it does."""

    turns: int = 2
    mood: str = "plays"
    name: ClassVar[str] = f"nasty{NASTY}".replace("\r", "").replace("\b", "").replace("\x07", "")
    summary: ClassVar[str] = f"A summary. {NASTY}"
    actions: ClassVar[tuple[str, ...]] = (f"Left{NASTY}", "Right")
    actions_per_turn: ClassVar[int] = 1

    def task(self, seed: int) -> Task:
        if self.mood == "task":
            raise ValueError(f"no task {NASTY}")
        return Task(f"{NASTY}{seed % 50}", seed, ("train", "val", "test")[seed % 3], (f"tag{NASTY}",))

    def episode(self) -> Any:
        return _Episode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> Sequence[tuple[str, str]]:
        raise ValueError(f"cannot {NASTY}")


class _Episode:
    def __init__(self, env: Hostile) -> None:
        self.env, self.left = env, env.turns

    def start(self, task: Task, member: int) -> Observation:
        if self.env.mood == "start":
            raise RuntimeError(f"no start {NASTY}")
        return Observation(f"Look: {NASTY} {task.seed}")

    def step(self, response: str) -> Step:
        self.left -= 1
        if self.env.mood == "step":
            raise RuntimeError(f"no step {NASTY}")
        over = not self.left
        step = Step(Observation(NASTY), {f"r{NASTY}": 1.0}, None, None, None, (f"a{NASTY}",), True, NASTY, NASTY)
        return dataclasses.replace(step, ending=Ending.FAILED, outcome=0.0) if over else step


class Breaks(Hostile):
    """Its module can be imported, and it cannot be made."""

    def __init__(self) -> None:
        raise ValueError(f"not made {NASTY}")


def other_moods(mood: str) -> Any:
    """A factory of this mood."""
    return lambda: Hostile(mood=mood)


NO_TASK, NO_START, NO_STEP = (other_moods(mood) for mood in ("task", "start", "step"))
