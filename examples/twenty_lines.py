"""Write a number backwards, with a second attempt: a whole environment."""

import random
from dataclasses import dataclass

from heedful.envs.common.answers import read_answer
from heedful.envs.common.tasks import task_of
from heedful.types import Ending, Observation, Step, Task


@dataclass(frozen=True)
class Backwards:
    digits: int = 5
    name, turns = "backwards", 2

    def number(self, seed: int) -> str:
        return "".join(random.Random(f"{self.name}:{seed}").choices("123456789", k=self.digits))

    def task(self, seed: int) -> Task:
        return task_of(self.name, self.number(seed), seed)

    def episode(self) -> "Game":
        return Game(self)


class Game:
    def __init__(self, env: Backwards) -> None:
        self.env, self.left = env, env.turns

    def start(self, task: Task, member: int) -> Observation:
        self.number = self.env.number(task.seed)
        return Observation(
            f"You have {self.left} turns. Answer as in <answer>321</answer>. Write backwards: {self.number}"
        )

    def step(self, response: str) -> Step:
        self.left, solved = self.left - 1, read_answer(response, longest=40).text == self.number[::-1]
        ending = Ending.SOLVED if solved else None if self.left else Ending.OUT_OF_TURNS
        return Step(Observation("Not so."), {"solved": float(solved)}, ending, float(solved) if ending else None)
