"""Echo: repeat the symbol that the prompt asks for. A toy for tests and first runs.

Promise: nothing but the prompt tells the right action, and each action is right equally often.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from heedful.envs.common.actions import answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.demonstrations import played_through, template_thought
from heedful.envs.common.knobs import Instructions, check_penalty, check_range, check_share, check_wording
from heedful.envs.common.tasks import check_same_start, task_of
from heedful.types import Ending, Observation, Step, Task

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Echo:
    """Repeat the asked symbol; the fields are the knobs. At the defaults a random policy solves 1 task in 8.

    First observation of seed 0 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 1 moves 1
    echo D not F A G
    ```
    ```
    <think>echo D</think><answer>D</answer>
    ```

    With several turns each asks for another symbol, and all must be right. Reward components: `solved` (+1 at the end
    if every turn was right) and `format`. Outcome: 1 if solved, else 0. Progress: the share of turns that were right.
    There is no noise.
    """

    symbols: int = 8
    """How many letters there are, from A on: the actions."""
    decoys: int = 3
    """Other letters that the prompt names and that are wrong."""
    turns: int = 1
    """Symbols asked for, one per turn."""
    format_penalty: float = 0.1
    """Subtracted once for each turn whose reply has a fault."""
    instructions: Instructions = "full"
    """`full`: the rules in plain English in the first observation; `brief`: the state and the limits alone."""
    show_reward: bool = False
    """Show each turn's reward in the next observation (for comparison with published set-ups)."""
    imperfect: float = 0.0
    """Demonstrations: share of turns whose answer is random; the thought states the random answer."""
    template: float = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the prompt."""

    def __post_init__(self) -> None:
        check_range(self.name, "symbols", self.symbols, 2, len(ALPHABET))
        check_range(self.name, "decoys", self.decoys, 0, self.symbols - 1)
        check_range(self.name, "turns", self.turns, 1)
        check_share(self.name, "imperfect", self.imperfect)
        check_share(self.name, "template", self.template)
        check_penalty(self.name, self.format_penalty)
        check_wording(self.name, self.instructions)

    @property
    def name(self) -> str:
        return "echo"

    @property
    def summary(self) -> str:
        return f"Repeat the asked one of {self.symbols} letters, {self.turns} time{'s' if self.turns > 1 else ''}."

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(ALPHABET[: self.symbols])

    @property
    def actions_per_turn(self) -> int:
        return 1

    def rows(self, seed: int) -> tuple[str, ...]:
        """The letters that each turn names, the asked one first."""
        rng = random.Random(f"echo:{seed}")
        letters = ALPHABET[: self.symbols]
        return tuple("".join(rng.sample(letters, 1 + self.decoys)) for _ in range(self.turns))

    def task(self, seed: int) -> Task:
        return task_of("echo", "\n".join(self.rows(seed)), seed)

    def episode(self) -> EchoEpisode:
        return EchoEpisode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode, repeating what is asked; see `imperfect` and `template`."""

        def reply(episode: EchoEpisode) -> str:
            letter = episode.asked
            if rng.random() < self.imperfect:
                letter = rng.choice(self.actions)
            thought = template_thought(rng) if rng.random() < self.template else f"echo {letter}"
            return format_reply([letter], thought)

        return played_through(self.episode(), task, reply)


class EchoEpisode:
    """One episode; see `Echo`."""

    __slots__ = ("_env", "_right", "_rows", "_turn")

    _rows: tuple[str, ...]

    def __init__(self, env: Echo) -> None:
        self._env = env
        self._turn = 0
        self._right = 0

    @property
    def asked(self) -> str:
        """The letter to repeat now."""
        return self._rows[self._turn][0]

    def start(self, task: Task, member: int) -> Observation:
        check_same_start(self._env.task(task.seed), task)
        self._rows = self._env.rows(task.seed)
        return self._observation(self._show(), first=True)

    def step(self, response: str) -> Step:
        env = self._env
        read = read_reply(response, env.actions, 1)
        asked = self.asked
        self._right += read.actions == (asked,)
        self._turn += 1
        over = self._turn == env.turns
        solved = over and self._right == env.turns
        rewards: dict[str, float] = {}
        if solved:
            rewards["solved"] = 1.0
        if read.fault:
            rewards["format"] = -env.format_penalty
        note = fault_line(read, env.instructions == "brief")
        if env.show_reward:
            note += f"reward {sum(rewards.values()):g}\n"
        said = read.actions[0] if read.actions else "nothing"
        return Step(
            observation=self._observation(note + ("" if over else self._show())),
            rewards=rewards,
            ending=None if not over else Ending.SOLVED if solved else Ending.FAILED,
            outcome=float(solved) if over else None,
            progress=self._right / env.turns if over else None,
            actions=read.actions,
            valid=not read.fault,
            effect=f"{said} for {asked}" + (f"; {read.fault}" if read.fault else ""),
            state=f"{self._right} of {self._turn} right" + ("" if over else f", {self._rows[self._turn]}"),
        )

    def _observation(self, text: str, first: bool = False) -> Observation:
        """`text` as it goes on a conversation (or, the first one, begins it), and as one could begin with it."""
        opening = _rules(self._env) + text
        return Observation(opening if first else text, opening)

    def _show(self) -> str:
        env = self._env
        left = env.turns - self._turn
        row = self._rows[self._turn]
        limits = f"turns {left} moves 1" if env.instructions == "brief" else f"Turns left: {left}. One action each."
        decoys = f" not {' '.join(row[1:])}" if env.decoys else ""
        return f"{limits}\necho {row[0]}{decoys}"


@lru_cache(maxsize=64)
def _rules(env: Echo) -> str:
    """What an opening begins with; nothing under brief instructions."""
    if env.instructions == "brief":
        return ""
    wanted = "Repeat the letter that follows the word echo"
    wanted += ", and none of those that follow the word not." if env.decoys else "."
    if env.turns > 1:
        wanted += " Each turn asks for another letter, and every turn must be right."
    actions = f"The actions are {', '.join(env.actions)}."
    return f"{wanted}\n{actions}\n{answer_rules(env.actions, env.turns, 1)}\n"
