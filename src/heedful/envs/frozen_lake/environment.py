"""FrozenLake: cross a random lake to the goal without falling into a hole.

Every task can be solved within the turns and actions that the prompt states. (task, member, replies) replays an
episode exactly.

The dynamics are gymnasium's FrozenLake on random maps with random distinct start and goal cells: the intended move
happens with probability 1 - slip (gymnasium's `success_rate`), each of the two sideways moves with slip / 2.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import Count, Share
from heedful.envs.common.actions import answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.base import BaseEpisode, Played, SolvableEnvironment, remarks
from heedful.envs.common.contract import MOST_PER_TURN
from heedful.envs.common.demonstrations import choose_plan, listed, played_through, template_in, wording
from heedful.envs.common.knobs import Turns
from heedful.envs.common.pictures import Cell, ObservationForm, check_form, has_picture, text_form
from heedful.envs.frozen_lake.maps import ACTIONS, Lake, best_success, draw_lake, neighbours, slipped
from heedful.envs.frozen_lake.picture import LEGEND, lake_picture
from heedful.pixels import need_pillow
from heedful.types import Ending, Image, Task

_NUMBER = {name: number for number, name in enumerate(ACTIONS)}
_TRIES = 10_000
_TRIES_AT_CONSTRUCTION = 2_000
_LARGEST = 50
"""Most rows: drawing a lake takes time with the square of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenLake(SolvableEnvironment):
    """Cross a frozen lake. At the defaults a random policy solves about 1 task in 7.

    First observation of seed 2 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 5 moves 2
    P__O
    __GO
    O___
    _O__
    P 0 0 G 1 2
    ```
    ```
    <think>P 0 0 G 1 2 plan Down Right Right</think><answer>Down || Right</answer>
    ```

    Reward components: `solved` (+1 on reaching the goal) and `format` (minus the penalty, once per faulty turn).
    Outcome: 1 on the goal, else 0. Progress: 1 - remaining / initial shortest distance, cut to [0, 1]. 0 in a hole.
    """

    name: ClassVar[str] = "frozen_lake"
    english: ClassVar[bool] = True
    board: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ACTIONS

    size: Annotated[int, Interval(ge=2, le=_LARGEST)] = 4
    """Rows and columns of the lake, 50 at most."""
    slip: Share = 0.0
    """Probability of not going where intended, split equally over the two sideways directions."""
    frozen: Share = 0.8
    """Probability that a cell is ice, not a hole."""
    turns: Turns = 5
    actions_per_turn: Annotated[int, Interval(ge=1, le=MOST_PER_TURN)] = 2
    """Most actions executed in one turn."""
    observation: ObservationForm = "both"
    """What shows the state: the grid, coordinates (row column, from 0 at the top left), both, a picture, or a picture
    with grid and coordinates. Pictures need the extra vision."""
    cell: Cell = 28
    """Pixels of a side of one cell in the picture. 28 is whole tokens for Qwen2.5-VL, 32 for Qwen3-VL."""
    shared_noise: bool = False
    """Give all members of a group the same noise (for comparison with published set-ups)."""
    shortest: Count = 2
    """Fewest moves of a task's shortest solution. The most is the budget, turns x actions_per_turn."""

    def check(self) -> None:
        check_form(self.name, self.observation, self.cell, self.size)
        if self.shortest > self.budget:
            raise ValueError(
                f"frozen_lake: no task can be solved within its limits: shortest is {self.shortest} moves, but "
                f"turns x actions_per_turn allows {self.budget}. Lower shortest or raise turns."
            )
        draw_lake(self.size, self.frozen, self.shortest, self.budget, 0, _TRIES_AT_CONSTRUCTION)

    @property
    def summary(self) -> str:
        return f"Cross a {self.size}x{self.size} lake without falling into a hole; {self.slip:.0%} slip."

    @property
    def budget(self) -> int:
        """Most actions of an episode."""
        return self.turns * self.actions_per_turn

    def lake(self, seed: int) -> Lake:
        """The start state that a seed draws."""
        return draw_lake(self.size, self.frozen, self.shortest, self.budget, seed, _TRIES)

    def task(self, seed: int) -> Task:
        if has_picture(self.observation):
            need_pillow()
        return self.lake(seed).task

    def episode(self) -> FrozenLakeEpisode:
        return FrozenLakeEpisode(self)

    @property
    def noisy(self) -> bool:
        return self.slip > 0

    def best_success(self, task: Task) -> float | None:
        return best_success(self.lake(task.seed), self.slip, self.turns, self.actions_per_turn)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode by shortest plans, planned again each turn. See `imperfect` and `template`."""

        def reply(episode: FrozenLakeEpisode) -> str:
            lake, player = episode.lake, episode.player
            plan = choose_plan(lake.plan(player), ACTIONS, self.actions_per_turn, self.imperfect, rng)
            thought = f"{_place(lake, player, 'P')} {_place(lake, lake.goal, 'G')} plan {' '.join(plan)}"
            if rng.random() < self.template:
                thought = template_in(self.thoughts, rng)
            elif self.thoughts == "english":
                thought = crossing_thought(lake, player, plan, wording(rng))
            elif self.thoughts == "board":
                thought = f"{lake.draw(player)}\n{thought}"
            return format_reply(plan[: self.actions_per_turn], thought)

        return played_through(self.episode(), task, reply)

    def full_rules(self) -> str:
        lines = [
            f"You cross a frozen lake of {self.size} rows and {self.size} columns. "
            "Reach the goal without stepping into a hole."
        ]
        shown = text_form(self.observation)
        if has_picture(self.observation):
            lines.append(LEGEND)
        if shown in ("grid", "both"):
            lines.append("In the grid, P is you, _ is ice, O is a hole and G is the goal.")
        if shown in ("coordinates", "both"):
            holes = ", O is a hole" if shown == "coordinates" else ""
            lines.append(
                "Places are given as row and column, both counted from 0 at the top left: P is you, G is the "
                f"goal{holes}."
            )
        lines.append(
            f"The actions are {', '.join(ACTIONS)}. Each moves you by one cell; at the edge of the lake you stay in "
            "place."
        )
        if self.slip > 0:
            lines.append(
                f"The ice is slippery: with probability {self.slip:g} a move goes to one of the two sides of the "
                "intended direction instead, to each equally often."
            )
        lines.append("Stepping into a hole ends the attempt.")
        lines.append(answer_rules(ACTIONS, self.turns, self.actions_per_turn))
        return "\n".join(lines) + "\n"


class FrozenLakeEpisode(BaseEpisode[FrozenLake]):
    """One episode of `FrozenLake`."""

    __slots__ = ("_noise", "_noise_name", "lake", "player")

    lake: Lake
    player: int

    def begin(self, task: Task, member: int) -> str:
        self.lake = self.env.lake(task.seed)
        self.player = self.lake.start
        self._noise: random.Random | None = None
        self._noise_name = str(task.seed) if self.env.shared_noise else f"{task.seed}:{member}"
        return self._show(self.lake.draw(self.player))

    def play(self, response: str) -> Played:
        env, lake = self.env, self.lake
        read = read_reply(response, ACTIONS, env.actions_per_turn)
        before = self.player
        executed: list[str] = []
        while len(executed) < len(read.actions) and not self._over():
            name = read.actions[len(executed)]
            executed.append(name)
            self._move(_NUMBER[name])
        ending = self._ending()
        grid = lake.draw(self.player)
        return Played(
            fault=read.fault,
            rewards={"solved": 1.0} if ending is Ending.SOLVED else {},
            ending=ending,
            progress=self._progress(),
            actions=tuple(executed),
            note=fault_line(read, env.brief),
            shown=self._show(grid),
            effect=remarks(self._effect(before, executed, ending), read.fault),
            state=grid,
        )

    def images(self) -> tuple[Image, ...]:
        if not has_picture(self.env.observation):
            return ()
        return (lake_picture(self.lake.draw(self.player), self.env.cell),)

    def _over(self) -> bool:
        return self.player == self.lake.goal or self.lake.holes[self.player]

    def _move(self, action: int) -> None:
        slip = self.env.slip
        if slip > 0:
            if self._noise is None:
                self._noise = random.Random(self._noise_name)
            action = slipped(action, slip, self._noise.random())
        self.player = neighbours(self.lake.size)[self.player][action]

    def _ending(self) -> Ending | None:
        if self.player == self.lake.goal:
            return Ending.SOLVED
        if self.lake.holes[self.player]:
            return Ending.FAILED
        return Ending.OUT_OF_TURNS if self.turns_left <= 0 else None

    def _progress(self) -> float:
        if self.lake.holes[self.player]:
            return 0.0
        return max(0.0, 1.0 - self.lake.distances[self.player] / self.lake.distances[self.lake.start])

    def _effect(self, before: int, executed: list[str], ending: Ending | None) -> str:
        moves = " ".join(executed) or "nothing executed"
        text = f"{moves}: {_place(self.lake, before, 'P')} -> {_place(self.lake, self.player, 'P')}"
        if ending is Ending.SOLVED:
            text += ", goal"
        elif ending is Ending.FAILED:
            text += ", hole"
        return text

    def _show(self, grid: str) -> str:
        """The end of every observation: the limits and the state."""
        env, lake = self.env, self.lake
        lines = [self.limits(env.actions_per_turn, f"Actions per turn: at most {env.actions_per_turn}.")]
        shown = text_form(env.observation)
        if shown in ("grid", "both"):
            lines.append(grid)
        if shown in ("coordinates", "both"):
            line = f"{_place(lake, self.player, 'P')} {_place(lake, lake.goal, 'G')}"
            if shown == "coordinates":
                line += "".join(f" {_place(lake, cell, 'O')}" for cell, hole in enumerate(lake.holes) if hole)
            lines.append(line)
        return "\n".join(lines)


def _place(lake: Lake, cell: int, symbol: str) -> str:
    return f"{symbol} {cell // lake.size} {cell % lake.size}"


_MOST_HOLES = 2
"""Holes that a thought names: the first ones beside the shortest way of the solver."""


def crossing_thought(lake: Lake, player: int, plan: Sequence[str], words: random.Random) -> str:
    """Where the player and the goal are, the holes beside a shortest way, and the moves of `plan`."""
    place = words.choice(("row {} column {}", "row {}, column {}", "({}, {})"))

    def at(cell: int) -> str:
        return place.format(*divmod(cell, lake.size))

    here, goal, offset = at(player), at(lake.goal), _offset(lake, player)
    where = words.choice(
        (
            f"I am at {here} and the goal is at {goal}, {offset} from me.",
            f"The goal at {goal} is {offset} from my place at {here}.",
            f"I stand at {here}. The goal is {offset}, at {goal}.",
            f"From {here} to the goal at {goal} it is {offset}.",
            f"My place is {here}, the goal is {offset} at {goal}.",
        )
    )
    holes = lake.holes_beside(player, lake.plan(player))[:_MOST_HOLES]
    if not holes:
        risk = words.choice(("A shortest way has no hole beside it.", "I see a shortest way with no hole beside it."))
    elif len(holes) == 1:
        risk = words.choice(("There is a hole at {}.", "A hole is at {}.", "I see a hole at {}."))
    else:
        risk = words.choice(("There are holes at {}.", "Holes are at {}.", "I see holes at {}."))
    moves = words.choice((", ", " then ", ", then ")).join(plan)
    step = words.choice(("Plan:", "My plan is", "I go", "My moves are", "I will go"))
    return f"{where} {risk.format(listed([at(hole) for hole in holes]) if holes else '')} {step} {moves}."


def _offset(lake: Lake, player: int) -> str:
    """How far the goal is: `1 down and 2 right`."""
    (row, column), (goal_row, goal_column) = divmod(player, lake.size), divmod(lake.goal, lake.size)
    down, right = goal_row - row, goal_column - column
    parts = [f"{abs(down)} {'down' if down > 0 else 'up'}"] if down else []
    parts += [f"{abs(right)} {'right' if right > 0 else 'left'}"] if right else []
    return listed(parts)
