"""The game of `my_game.py` on the base classes: with the knobs, prompts and penalties of the built-in environments."""

import random
from dataclasses import dataclass

from heedful.envs.common import BaseEnvironment, BaseEpisode, Played, free_text_rules, read_answer, task_of
from heedful.types import Ending, Task


@dataclass(frozen=True, kw_only=True)
class GuessNumber(BaseEnvironment):
    name = "guess_number"
    span: int = 7
    turns: int = 3

    def draw(self, seed: int) -> tuple[int, int]:
        rng = random.Random(f"guess_number:{seed}")
        low = rng.randrange(1000)
        return low, low + rng.randrange(self.span)

    def task(self, seed: int) -> Task:
        return task_of(self.name, f"{self.span} {self.draw(seed)}", seed)

    def episode(self) -> "Game":
        return Game(self)

    def full_rules(self) -> str:
        form = free_text_rules("An answer is a whole number.", "7", self.turns)
        return f"Guess a number. After a wrong guess you are told whether it is higher or lower.\n{form}"


class Game(BaseEpisode[GuessNumber]):
    def begin(self, task: Task, member: int) -> str:
        self.low, self.secret = self.env.draw(task.seed)
        return self.show()

    def show(self) -> str:
        return f"{self.limits()}\nfrom {self.low} to {self.low + self.env.span - 1}"

    def play(self, response: str) -> Played:
        read = read_answer(response, longest=9)
        guess = int(read.text) if read.text.isascii() and read.text.isdigit() else None
        solved = guess == self.secret
        word = "no number" if guess is None else "higher" if guess < self.secret else "lower"
        return Played(
            fault=word if guess is None else "",
            rewards={"solved": float(solved)},
            ending=Ending.SOLVED if solved else None if self.turns_left else Ending.FAILED,
            actions=() if guess is None else (str(guess),),
            note="" if solved else f"{word}\n",
            shown=self.show(),
        )
