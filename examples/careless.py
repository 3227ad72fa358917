"""The environment of `twenty_lines.py` with three mistakes, for `heedful check-env` to find."""

import random
from dataclasses import dataclass

from twenty_lines import Backwards, Game

from heedful.types import Observation, Step, Task


@dataclass(frozen=True)
class Careless(Backwards):
    def number(self, seed: int) -> str:
        random.seed(seed)  # a generator shared by the whole process
        return "".join(random.choices("123456789", k=self.digits))

    def episode(self) -> "CarelessGame":
        return CarelessGame(self)


class CarelessGame(Game):
    def start(self, task: Task, member: int) -> Observation:
        super().start(task, member)
        return Observation(
            f"Answer as in <answer>321</answer>. Write backwards: {self.number}"
        )  # the number of turns is never stated

    def step(self, response: str) -> Step:
        step = super().step(response)
        answer = response.partition("<answer>")[2].partition("</answer>")[0]
        wrong = f"{int(answer)} is not it." if answer.isdigit() else "That is no number."  # "\u00b2".isdigit() is True
        return Step(Observation(wrong), step.rewards, step.ending, step.outcome)
