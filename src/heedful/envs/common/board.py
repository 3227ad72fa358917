"""Boards that are crossed by named moves: how the state is shown, how a reply is executed, how a solver thinks aloud.

A subclass writes its game: what a move does, where things are, when it is over, and how its solver plans.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from annotated_types import Interval

from heedful.boundary import Count, settings
from heedful.envs.common.actions import answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.base import BaseEpisode, Played, SolvableEnvironment, Turns, remarks
from heedful.envs.common.contract import MOST_PER_TURN
from heedful.envs.common.demonstrations import choose_plan, played_through, template_in, wording
from heedful.envs.common.pictures import Palette, draw_board
from heedful.envs.transport.images import LARGEST_SIDE
from heedful.pixels import need_pillow
from heedful.types import Ending, Image, Task

TRIES = 10_000
"""Start states that are drawn for a task, until one can be solved within the limits."""


def grid_of(symbols: Iterable[str], size: int) -> str:
    """A square board as text, one row per line."""
    text = "".join(symbols)
    return "\n".join(text[start : start + size] for start in range(0, size * size, size))


@settings(kw_only=True)
class BoardEnvironment(SolvableEnvironment):
    """The knobs of a square board with named moves."""

    board: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]]
    move_word: ClassVar[str] = "moves"
    """What errors call the actions."""
    tries_at_construction: ClassVar[int] = 1_000
    """Start states that are drawn before a configuration counts as one without tasks."""
    palette: ClassVar[Palette]
    legend: ClassVar[str]
    grid_words: ClassVar[str]
    """What the symbols of the grid mean."""
    place_words: ClassVar[str]
    hidden_words: ClassVar[str]
    """What the last places mean, of those that coordinates name only without a grid."""
    step_reward: ClassVar[float] = 0.0
    solved_reward: ClassVar[float] = 1.0

    size: int = 4
    """Rows and columns."""
    turns: Turns = 5
    actions_per_turn: Annotated[int, Interval(ge=1, le=MOST_PER_TURN)] = 2
    """Most actions executed in one turn."""
    observation: Literal["grid", "coordinates", "both", "image", "image_and_text"] = "both"
    """What shows the state: the grid, coordinates (row column, from 0 at the top left), both, a picture, or a picture
    with grid and coordinates. Pictures need the extra vision."""
    cell: Annotated[int, Interval(ge=4, le=256)] = 28
    """Pixels of a side of one cell in the picture. 28 is whole tokens for Qwen2.5-VL, 32 for Qwen3-VL."""
    shortest: Count = 2
    """Fewest actions of a task's shortest solution. The most is the budget, turns x actions_per_turn."""

    def check(self) -> None:
        if self.has_picture and self.size * self.cell > LARGEST_SIDE:
            raise ValueError(
                f"{self.name}: a picture may have {LARGEST_SIDE:,} pixels a side, but {self.size} rows of cell "
                f"{self.cell} have {self.size * self.cell:,}. Lower cell or size."
            )
        if self.shortest > self.budget:
            raise ValueError(
                f"{self.name}: no task can be solved within its limits: shortest is {self.shortest} {self.move_word}, "
                f"but turns x actions_per_turn allows {self.budget}. Lower shortest or raise turns."
            )
        self.start_state(0, self.tries_at_construction)

    @property
    def budget(self) -> int:
        """Most actions of an episode."""
        return self.turns * self.actions_per_turn

    @property
    def has_picture(self) -> bool:
        return self.observation in ("image", "image_and_text")

    @property
    def has_grid(self) -> bool:
        return self.observation in ("grid", "both", "image_and_text")

    @property
    def has_places(self) -> bool:
        return self.observation in ("coordinates", "both", "image_and_text")

    @abstractmethod
    def start_state(self, seed: int, tries: int = TRIES) -> Any:
        """What the seed draws, with its `task`. Raises ValueError where none of `tries` draws can be solved."""

    def task(self, seed: int) -> Task:
        if self.has_picture:
            need_pillow()
        task: Task = self.start_state(seed).task
        return task

    @abstractmethod
    def episode(self) -> BoardEpisode[Any]: ...

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode by shortest solutions, solved again each turn. See `imperfect` and `template`."""

        def reply(episode: BoardEpisode[Any]) -> str:
            best = episode.plan(rng)
            plan = choose_plan(best, self.actions, self.actions_per_turn, self.imperfect, rng)
            thought = f"{episode.places()} plan {' '.join(plan)}"
            if rng.random() < self.template:
                thought = template_in(self.thoughts, rng)
            elif self.thoughts == "english":
                thought = episode.in_english(plan, wording(rng))
            elif self.thoughts == "board":
                thought = f"{episode.grid()}\n{thought}"
            return format_reply(plan[: self.actions_per_turn], thought)

        return played_through(self.episode(), task, reply)

    def answer_worth(self, task: Task, reply: str) -> float | None:
        """The way to the end of the game that the written actions save, of the most that one answer can save.

        Actions that are written behind the end of the game do not count. `None` where chance decides.
        """
        state = self.start_state(task.seed)
        written = read_reply(reply, self.actions, self.actions_per_turn).actions
        saved = self.saved(state, [self.actions.index(name) for name in written])
        most = min(self.actions_per_turn, self.shortest_of(state))
        return None if saved is None else max(0.0, saved / most)

    @abstractmethod
    def shortest_of(self, state: Any) -> int:
        """The actions of a shortest way from a start state to the end of the game."""

    @abstractmethod
    def saved(self, state: Any, actions: Sequence[int]) -> float | None:
        """How much shorter the way is after these actions from a start state. At most 0 where the game is lost; `None`
        where chance decides."""

    def full_rules(self) -> str:
        lines = [self.aim()]
        if self.has_picture:
            lines.append(self.legend)
        if self.has_grid:
            lines.append(f"In the grid, {self.grid_words}.")
        if self.has_places:
            hidden = "" if self.has_grid else f", {self.hidden_words}"
            lines.append(
                f"Places are given as row and column, both counted from 0 at the top left: {self.place_words}{hidden}."
            )
        rules = answer_rules(self.actions, self.turns, self.actions_per_turn)
        return "\n".join([*lines, *self.move_rules(), rules]) + "\n"

    @abstractmethod
    def aim(self) -> str:
        """The first sentence of the rules."""

    @abstractmethod
    def move_rules(self) -> Sequence[str]:
        """The lines of the rules on the actions."""


Board = TypeVar("Board", bound=BoardEnvironment)


class BoardEpisode(BaseEpisode[Board]):
    """One episode on a board. A subclass begins with `begin`, which returns `self.show()`."""

    __slots__ = ()

    remarks_on: ClassVar[Mapping[Ending, str]] = {}
    """What `effect` says of an ending."""

    @abstractmethod
    def grid(self) -> str:
        """The state, one row per line."""

    @abstractmethod
    def places(self) -> str:
        """The state as symbols with row and column."""

    @abstractmethod
    def hidden(self) -> str:
        """What a grid shows besides, in the same form, each place after a space."""

    @abstractmethod
    def move(self, action: int, rewards: dict[str, float]) -> None:
        """Execute one action by its number. It may add to the turn's rewards."""

    @abstractmethod
    def over(self) -> Ending | None:
        """Why the game is over. `None` if it goes on."""

    @abstractmethod
    def progress(self) -> float: ...

    @abstractmethod
    def plan(self, rng: random.Random) -> Sequence[str]:
        """A shortest solution. Random actions where there is none any more."""

    def moved(self) -> str:
        """What `effect` shows before and after the moves."""
        return self.places()

    def in_english(self, plan: Sequence[str], words: random.Random) -> str:
        """A thought in English. Written by environments with `english`."""
        raise NotImplementedError

    def place(self, symbol: str, cell: int) -> str:
        return f"{symbol} {cell // self.env.size} {cell % self.env.size}"

    def play(self, response: str) -> Played:
        env = self.env
        read = read_reply(response, env.actions, env.actions_per_turn)
        before = self.moved()
        executed: list[str] = []
        rewards: dict[str, float] = {}
        for name in read.actions:
            if self.over() is not None:
                break
            executed.append(name)
            self.move(env.actions.index(name), rewards)
        ending = self.over()
        if env.step_reward and executed:
            rewards["step"] = env.step_reward * len(executed)
        if ending is Ending.SOLVED:
            rewards["solved"] = env.solved_reward
        moves = " ".join(executed) or "nothing executed"
        effect = f"{moves}: {before} -> {self.moved()}{self.remarks_on.get(ending, '') if ending else ''}"
        return Played(
            fault=read.fault,
            rewards=rewards,
            ending=ending or (None if self.turns_left > 0 else Ending.OUT_OF_TURNS),
            progress=self.progress(),
            actions=tuple(executed),
            note=fault_line(read, env.brief),
            shown=self.show(),
            effect=remarks(effect, read.fault),
            state=self.grid(),
        )

    def images(self) -> tuple[Image, ...]:
        return (draw_board(self.env.palette, self.grid(), self.env.cell),) if self.env.has_picture else ()

    def show(self) -> str:
        """The end of every observation: the limits and the state."""
        env = self.env
        lines = [self.limits(env.actions_per_turn, f"Actions per turn: at most {env.actions_per_turn}.")]
        if env.has_grid:
            lines.append(self.grid())
        if env.has_places:
            lines.append(self.places() + ("" if env.has_grid else self.hidden()))
        return "\n".join(lines)
