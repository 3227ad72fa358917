"""A corridor with a door at one of its ends. The prompt says at which."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from heedful.envs.common import (
    BaseEpisode,
    Played,
    SolvableEnvironment,
    answer_rules,
    fault_line,
    format_reply,
    played_through,
    read_reply,
    task_of,
    template_thought,
)
from heedful.types import Ending, Task

PLACES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Corridor(SolvableEnvironment):
    """Walk to the door."""

    name: ClassVar[str] = "corridor"
    actions: ClassVar[tuple[str, ...]] = ("Left", "Right")
    turns: int = 1

    @property
    def actions_per_turn(self) -> int:
        return 1

    @property
    def summary(self) -> str:
        return "A corridor with a door at one end."

    def door(self, seed: int) -> str:
        return random.Random(f"corridor:{seed}").choice(self.actions)

    def task(self, seed: int) -> Task:
        return task_of(self.name, f"{self.door(seed)} {seed % PLACES}", seed)

    def episode(self) -> CorridorEpisode:
        return CorridorEpisode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        door = self.door(task.seed)
        thought = template_thought(rng) if rng.random() < self.template else f"door {door} go {door}"
        return played_through(self.episode(), task, lambda episode: format_reply([door], thought))

    def full_rules(self) -> str:
        return f"Walk to the door.\n{answer_rules(self.actions, self.turns, 1)}\n"


class CorridorEpisode(BaseEpisode[Corridor]):
    """One walk."""

    __slots__ = ("door", "place")

    def begin(self, task: Task, member: int) -> str:
        self.door, self.place = self.env.door(task.seed), task.seed % PLACES
        return f"{self.limits(1)}\nplace {self.place} door {self.door}"

    def play(self, response: str) -> Played:
        read = read_reply(response, self.env.actions, 1)
        right = read.actions == (self.door,)
        return Played(
            fault=read.fault,
            rewards={"door": float(right)},
            ending=Ending.SOLVED if right else Ending.FAILED,
            outcome=float(right),
            actions=read.actions,
            note=fault_line(read, self.env.brief),
            shown="",
            effect="at the door" if right else "at the wall",
        )


class PaintedCorridor(Corridor):
    """The same with paintings, for which another package is needed."""

    package: ClassVar[str] = "a_package_that_nobody_has"
