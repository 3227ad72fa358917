"""Guess a number. Each wrong guess is answered with "higher" or "lower"."""

import random
import re
from dataclasses import dataclass

from heedful.envs.common.tasks import task_of
from heedful.types import Ending, Observation, Step, Task


@dataclass(frozen=True)
class GuessNumber:
    """The environment. Its fields are knobs, here and on the command line (`--env.span 15`)."""

    span: int = 7
    turns: int = 3
    name = "guess_number"

    def draw(self, seed: int) -> tuple[int, int]:
        rng = random.Random(f"guess_number:{seed}")
        low = rng.randrange(1000)
        return low, low + rng.randrange(self.span)

    def task(self, seed: int) -> Task:
        return task_of(self.name, f"{self.span} {self.draw(seed)}", seed)

    def episode(self) -> "Game":
        return Game(self)


class Game:
    """One episode: text in, text out, used once."""

    def __init__(self, env: GuessNumber) -> None:
        self.env, self.left = env, env.turns

    def start(self, task: Task, member: int) -> Observation:
        self.low, self.secret = self.env.draw(task.seed)
        return Observation(
            f"I think of a number from {self.low} to {self.low + self.env.span - 1}. You have {self.left} guesses.\n"
            "Think first, then answer in this form: <think>your reasoning</think><answer>7</answer>"
        )

    def step(self, response: str) -> Step:
        self.left -= 1
        answer = re.search(r"<answer>\s*(\d{1,9})\s*</answer>", response.partition("</think>")[2])
        guess = int(answer[1]) if answer else None
        solved = guess == self.secret
        ending = Ending.SOLVED if solved else None if self.left else Ending.FAILED
        word = "That was no number." if guess is None else "Higher." if guess < self.secret else "Lower."
        return Step(
            observation=Observation(f"{word} Guesses left: {self.left}."),
            rewards={"solved": float(solved), "format": -0.1 if guess is None else 0.0},
            ending=ending,
            outcome=None if ending is None else float(solved),
            actions=() if guess is None else (str(guess),),
            valid=guess is not None,
        )
