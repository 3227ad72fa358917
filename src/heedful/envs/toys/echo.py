"""Echo: repeat the symbol that the prompt asks for. A toy for tests and first runs.

Only the prompt tells the right action, and each action is right equally often.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.envs.common.actions import answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.base import BaseEpisode, Played, SolvableEnvironment, Turns, check_range, remarks
from heedful.envs.common.demonstrations import played_through, template_thought
from heedful.envs.common.tasks import task_of
from heedful.types import Ending, Task

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo(SolvableEnvironment):
    """Repeat the asked symbol. At the defaults a random policy solves 1 task in 8.

    With several turns each asks for another symbol, and all must be right. Reward components: `solved` (+1 at the end
    if every turn was right) and `format`. Outcome: 1 if solved, else 0. Progress: the share of turns that were right.
    There is no noise.
    """

    name: ClassVar[str] = "echo"
    actions_per_turn: ClassVar[int] = 1

    symbols: Annotated[int, Interval(ge=2, le=len(ALPHABET))] = 8
    """How many letters there are, from A on: the actions."""
    decoys: int = 3
    """Other letters that the prompt names and that are wrong."""
    turns: Turns = 1
    """Symbols asked for, one per turn."""

    def check(self) -> None:
        check_range(self.name, "decoys", self.decoys, 0, self.symbols - 1)

    @property
    def summary(self) -> str:
        return f"Repeat the asked one of {self.symbols} letters, {self.turns} time{'s' if self.turns > 1 else ''}."

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(ALPHABET[: self.symbols])

    def rows(self, seed: int) -> tuple[str, ...]:
        """The letters that each turn names, the asked one first."""
        rng = random.Random(f"echo:{seed}")
        letters = ALPHABET[: self.symbols]
        return tuple("".join(rng.sample(letters, 1 + self.decoys)) for _ in range(self.turns))

    def task(self, seed: int) -> Task:
        return task_of(self.name, "\n".join(self.rows(seed)), seed)

    def right_actions(self, task: Task, before: Sequence[Sequence[str]] = ()) -> dict[str, float]:
        """The letter that the next turn asks for."""
        return {self.rows(task.seed)[len(before)][0]: 1.0}

    def episode(self) -> EchoEpisode:
        return EchoEpisode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode, repeating what is asked. See `imperfect` and `template`."""

        def reply(episode: EchoEpisode) -> str:
            letter = episode.asked
            if rng.random() < self.imperfect:
                letter = rng.choice(self.actions)
            thought = template_thought(rng) if rng.random() < self.template else f"echo {letter}"
            return format_reply([letter], thought)

        return played_through(self.episode(), task, reply)

    def full_rules(self) -> str:
        wanted = "Repeat the letter that follows the word echo"
        wanted += ", and none of those that follow the word not." if self.decoys else "."
        if self.turns > 1:
            wanted += " Each turn asks for another letter, and every turn must be right."
        actions = f"The actions are {', '.join(self.actions)}."
        return f"{wanted}\n{actions}\n{answer_rules(self.actions, self.turns, 1)}\n"


class EchoEpisode(BaseEpisode[Echo]):
    """One episode of `Echo`."""

    __slots__ = ("_right", "_rows")

    _rows: tuple[str, ...]

    @property
    def asked(self) -> str:
        """The letter to repeat now."""
        return self._rows[self.turn][0]

    def begin(self, task: Task, member: int) -> str:
        self._rows = self.env.rows(task.seed)
        self._right = 0
        return self._show()

    def play(self, response: str) -> Played:
        read = read_reply(response, self.env.actions, 1)
        asked = self._rows[self.turn - 1][0]
        self._right += read.actions == (asked,)
        over = not self.turns_left
        solved = over and self._right == self.turn
        said = read.actions[0] if read.actions else "nothing"
        return Played(
            fault=read.fault,
            rewards={"solved": 1.0} if solved else {},
            ending=None if not over else Ending.SOLVED if solved else Ending.FAILED,
            progress=self._right / self.turn,
            actions=read.actions,
            note=fault_line(read, self.env.brief),
            shown="" if over else self._show(),
            effect=remarks(f"{said} for {asked}", read.fault),
            state=f"{self._right} of {self.turn} right" + ("" if over else f", {self._rows[self.turn]}"),
        )

    def _show(self) -> str:
        row = self._rows[self.turn]
        decoys = f" not {' '.join(row[1:])}" if self.env.decoys else ""
        return f"{self.limits(1, 'One action each.')}\necho {row[0]}{decoys}"
