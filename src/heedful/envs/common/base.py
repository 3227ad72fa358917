"""What the built-in environments share: their common knobs, and an episode around the game itself.

An environment needs none of this: `heedful.protocols` is the whole contract. An environment that is built on these
classes has the same knobs, prompts and penalties as the built-in ones, and writes only its game.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

from annotated_types import Interval

from heedful.boundary import NotNegative, Share, settings
from heedful.envs.common.actions import calls_tool
from heedful.envs.common.tasks import check_same_start
from heedful.models.chat.calls import fitting_tools
from heedful.protocols import Episode
from heedful.types import Ending, Image, Observation, Step, Task

Instructions = Literal["full", "brief"]
Thoughts = Literal["terse", "english", "board"]

IN_ENGLISH = ("bandit", "chain", "countdown", "frozen_lake", "math")
"""The built-in environments whose demonstrations can think in English."""

Turns = Annotated[int, Interval(ge=1, le=10_000)]
"""Most turns of an episode. Files of other people hold configurations: one number must not take all time and memory."""


def check_range(env: str, knob: str, value: int, least: int, most: int | None = None) -> None:
    """Raise ValueError unless `value` is in [least, most]: for bounds that depend on another knob."""
    if value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ValueError(f"{env}: {knob} must be {wanted}, but is {value}.")


@settings(kw_only=True)
class BaseEnvironment(ABC):
    """The knobs of every built-in environment. A subclass adds its own, a `name`, `task` and `episode`."""

    name: ClassVar[str]

    turns: Turns = 1
    """Most turns of an episode."""
    format_penalty: NotNegative = 0.1
    """Subtracted once for each turn whose reply has a fault."""
    instructions: Instructions = "full"
    """`full`: the rules in plain English in the first observation. `brief`: the state and the limits alone."""
    show_reward: bool = False
    """Show each turn's reward in the next observation (for comparison with published set-ups)."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:  # noqa: B027 - most environments have knobs to check, but none has to
        """Raise ValueError for a knob of the subclass that is out of range. Called when an environment is made."""

    @property
    def brief(self) -> bool:
        """Whether prompts are terse."""
        return self.instructions == "brief"

    def full_rules(self) -> str:
        """The rules in plain English, with which every opening begins under full instructions. Ends with a newline."""
        return ""

    @abstractmethod
    def task(self, seed: int) -> Task: ...

    @abstractmethod
    def episode(self) -> Episode: ...


@settings(kw_only=True)
class SolvableEnvironment(BaseEnvironment):
    """A built-in environment with a solver, and the knobs of its demonstrations."""

    english: ClassVar[bool] = False
    """Whether demonstrations can think in English."""
    board: ClassVar[bool] = False
    """Whether demonstrations can write down the board."""

    imperfect: Share = 0.0
    """Demonstrations: share of turns whose answer is random. The thought states the random answer."""
    template: Share = 0.0
    """Demonstrations: share of turns whose thought is a fluent sentence that ignores the prompt."""
    thoughts: Thoughts = "terse"
    """Demonstrations: how thoughts are written. `terse`: figures and names, for seedlings. `english`: varied sentences,
    for a pretrained model. `board`: the board as text before the terse form, for seedlings that see a picture."""

    def __post_init__(self) -> None:
        if self.thoughts == "english" and not self.english:
            raise ValueError(
                f"{self.name}: thoughts must be 'terse', but is 'english'. Demonstrations in English exist for "
                f"{', '.join(IN_ENGLISH)}."
            )
        if self.thoughts == "board" and not self.board:
            raise ValueError(
                f"{self.name}: thoughts must be 'terse' or 'english', but is 'board'. Only environments on a board, "
                "frozen_lake and sokoban, write it down."
            )
        self.check()

    @abstractmethod
    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a game says about one reply."""

    fault: str = ""
    """What is wrong with the reply, as a clause. Empty if nothing is. It costs the format penalty."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """Reward components of the turn, without `format`."""
    ending: Ending | None = None
    outcome: float | None = None
    """Counts at the end only. `None` = 1 if the ending is `SOLVED`, else 0."""
    progress: float | None = None
    """Counts at the end only."""
    actions: tuple[str, ...] = ()
    note: str = ""
    """What the next observation says about the reply: whole lines."""
    shown: str = ""
    """What the next observation shows of the state, limits included."""
    effect: str = ""
    state: str = ""


Knobs = TypeVar("Knobs", bound=BaseEnvironment)


class BaseEpisode(ABC, Generic[Knobs]):
    """One episode of a built-in environment. A subclass writes `begin` and `play`."""

    __slots__ = ("env", "turns_left")

    restarts: ClassVar[bool] = True
    """Whether an observation tells enough to begin a conversation with it, as a window of the last turns does."""

    def __init__(self, env: Knobs) -> None:
        self.env = env
        self.turns_left = env.turns

    @abstractmethod
    def begin(self, task: Task, member: int) -> str:
        """Build the start state, and return what is shown of it."""

    @abstractmethod
    def play(self, response: str) -> Played:
        """Carry out one reply. `turns_left` no longer counts the turn of this reply."""

    def start(self, task: Task, member: int) -> Observation:
        """Raises ValueError for a task that other knobs have drawn."""
        expected = self.env.task(task.seed)
        check_same_start(expected, task)
        return self.first(self.begin(expected, member))

    def step(self, response: str) -> Step:
        self.turns_left -= 1
        played = self.play(response)
        rewards = dict(played.rewards)
        if played.fault:
            rewards["format"] = -self.env.format_penalty
        paid = f"reward {sum(rewards.values()):g}\n" if self.env.show_reward else ""
        text = played.note + paid + played.shown
        over, outcome = played.ending is not None, played.outcome
        if outcome is None:
            outcome = float(played.ending is Ending.SOLVED)
        opening = rules_of(self.env) + text if self.restarts else ""
        role = "tool" if fitting_tools(self.env) and calls_tool(response) else "user"
        return Step(
            observation=Observation(text, opening, role, self.images()),
            rewards=rewards,
            ending=played.ending,
            outcome=outcome if over else None,
            progress=played.progress if over else None,
            actions=played.actions,
            valid=not played.fault,
            effect=played.effect,
            state=played.state,
        )

    def first(self, text: str) -> Observation:
        """The first observation: the rules, then `text`."""
        opening = rules_of(self.env) + text
        return Observation(opening, opening, images=self.images())

    def images(self) -> tuple[Image, ...]:
        """The pictures of the present state, which go with every observation. None, unless a subclass draws them."""
        return ()

    @property
    def turn(self) -> int:
        """The number of replies so far. Inside `play` it includes the current one."""
        return self.env.turns - self.turns_left

    def limits(self, moves: int = 1, told: str = "") -> str:
        """The line that says what is left. `told`: what full instructions say of the `moves` of a turn."""
        if self.env.brief:
            return f"turns {self.turns_left} moves {moves}"
        return f"Turns left: {self.turns_left}. {told}".rstrip()


@lru_cache(maxsize=64)
def rules_of(env: BaseEnvironment) -> str:
    """What an opening begins with: nothing under brief instructions."""
    return "" if env.brief else env.full_rules()


def remarks(*parts: str) -> str:
    """One line from the parts that say something."""
    return "; ".join(part for part in parts if part)
