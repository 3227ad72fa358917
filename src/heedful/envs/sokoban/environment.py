"""Sokoban: push every box onto a target. A wrong push may be final.

Every task can be solved within the turns and actions that the prompt states. There is no noise: (task, replies)
replays an episode exactly.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import Count, Share
from heedful.envs.common.actions import answer_rules, fault_line, format_reply, read_reply
from heedful.envs.common.base import BaseEpisode, Played, SolvableEnvironment, remarks
from heedful.envs.common.contract import MOST_PER_TURN
from heedful.envs.common.demonstrations import PLAN_SHOWN, choose_plan, played_through, template_thought
from heedful.envs.common.knobs import Turns, check_range
from heedful.envs.common.pictures import Cell, ObservationForm, check_form, has_picture, text_form
from heedful.envs.sokoban.levels import ACTIONS, Cells, Level, Room, draw_level
from heedful.envs.sokoban.picture import LEGEND, room_picture
from heedful.pixels import need_pillow
from heedful.types import Ending, Image, Task

STEP_REWARD = -0.1
BOX_REWARD = 1.0
SOLVED_REWARD = 10.0

_NUMBER = {name: number for number, name in enumerate(ACTIONS)}
_TRIES = 10_000
_TRIES_AT_CONSTRUCTION = 1_000
_LARGEST = 32
"""Most rows: drawing a level takes time with the square of them."""
_PATIENCE = 3
"""Demonstrations look for solutions of at most this many times the budget, before a state counts as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sokoban(SolvableEnvironment):
    """Push the boxes onto the targets. At the defaults a random policy solves about 1 in 50.

    First observation of seed 0 under `instructions="brief"`, and a demonstrated reply:

    ```
    turns 5 moves 2
    ######
    #_SX_#
    #____#
    #____#
    #____#
    ######
    P 1 2 X 1 3 O 1 2
    ```
    ```
    <think>P 1 2 X 1 3 O 1 2 plan Down Right Right Up</think><answer>Down || Right</answer>
    ```

    Reward components, those of gym-sokoban: `step` (-0.1 per executed action), `box_on` (+1 for each push of a box onto
    a target), `box_off` (-1 for each push off one), `solved` (+10), and `format` (minus the penalty, once per faulty
    turn). Outcome: 1 if every box stands on a target, else 0. Progress: the share of boxes on targets at the end.
    """

    name: ClassVar[str] = "sokoban"
    board: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ACTIONS

    size: Annotated[int, Interval(ge=4, le=_LARGEST)] = 6
    """Rows and columns of the room, the walls around it included, 32 at most."""
    boxes: int = 1
    """Boxes, and as many targets."""
    walls: Share = 0.1
    """Probability that an inner cell is a wall."""
    turns: Turns = 5
    actions_per_turn: Annotated[int, Interval(ge=1, le=MOST_PER_TURN)] = 2
    """Most actions executed in one turn."""
    observation: ObservationForm = "both"
    """What shows the state: the grid, coordinates (row column, from 0 at the top left), both, a picture, or a picture
    with grid and coordinates. Pictures need the extra vision."""
    cell: Cell = 28
    """Pixels of a side of one cell in the picture. 28 is whole tokens for Qwen2.5-VL, 32 for Qwen3-VL."""
    shortest: Count = 4
    """Fewest actions of a task's shortest solution. The most is the budget, turns x actions_per_turn."""

    def check(self) -> None:
        check_range(self.name, "boxes", self.boxes, 1, (self.size - 2) ** 2 - 1)
        check_form(self.name, self.observation, self.cell, self.size)
        if self.shortest > self.budget:
            raise ValueError(
                f"sokoban: no task can be solved within its limits: shortest is {self.shortest} actions, but "
                f"turns x actions_per_turn allows {self.budget}. Lower shortest or raise turns."
            )
        draw_level(self.size, self.boxes, self.walls, (self.shortest, self.budget), 0, _TRIES_AT_CONSTRUCTION)

    @property
    def summary(self) -> str:
        boxes = "1 box" if self.boxes == 1 else f"{self.boxes} boxes"
        return f"Push {boxes} onto targets in a {self.size}x{self.size} room."

    @property
    def budget(self) -> int:
        """Most actions of an episode."""
        return self.turns * self.actions_per_turn

    def level(self, seed: int) -> Level:
        """The start state that a seed draws."""
        return draw_level(self.size, self.boxes, self.walls, (self.shortest, self.budget), seed, _TRIES)

    def task(self, seed: int) -> Task:
        if has_picture(self.observation):
            need_pillow()
        return self.level(seed).task

    def episode(self) -> SokobanEpisode:
        return SokobanEpisode(self)

    def demonstrate(self, task: Task, rng: random.Random) -> list[tuple[str, str]]:
        """Play one episode by shortest solutions, solved again each turn. See `imperfect` and `template`.

        If a random plan has made the level unsolvable, the plans that follow are random too.
        """

        def reply(episode: SokobanEpisode) -> str:
            best = episode.room.solve(episode.player, episode.boxes, _PATIENCE * self.budget)
            if best is None:
                best = [rng.choice(ACTIONS) for _ in range(max(PLAN_SHOWN, self.actions_per_turn))]
            plan = choose_plan(best, ACTIONS, self.actions_per_turn, self.imperfect, rng)
            thought = f"{_places(episode.room, episode.player, episode.boxes)} plan {' '.join(plan)}"
            if rng.random() < self.template:
                thought = template_thought(rng)
            elif self.thoughts == "board":
                thought = f"{episode.room.draw(episode.player, episode.boxes)}\n{thought}"
            return format_reply(plan[: self.actions_per_turn], thought)

        return played_through(self.episode(), task, reply)

    def full_rules(self) -> str:
        boxes = "a box onto a target" if self.boxes == 1 else f"{self.boxes} boxes onto {self.boxes} targets"
        lines = [f"You push {boxes} in a room of {self.size} rows and {self.size} columns, with walls all around."]
        shown = text_form(self.observation)
        if has_picture(self.observation):
            lines.append(LEGEND)
        if shown in ("grid", "both"):
            lines.append(
                "In the grid, # is a wall, _ is floor, P is you, X is a box, O is a target, * is a box on a target and "
                "S is you on a target."
            )
        if shown in ("coordinates", "both"):
            walls = ", # is a wall inside the room" if shown == "coordinates" else ""
            lines.append(
                "Places are given as row and column, both counted from 0 at the top left: P is you, X is a box, O is a "
                f"target{walls}."
            )
        lines.append(
            f"The actions are {', '.join(ACTIONS)}. Each moves you by one cell. If a box stands there, you push it "
            "on by one cell. You stay in place if a wall is there, or if a wall or another box is behind the box. You "
            "cannot pull."
        )
        lines.append(answer_rules(ACTIONS, self.turns, self.actions_per_turn))
        return "\n".join(lines) + "\n"


class SokobanEpisode(BaseEpisode[Sokoban]):
    """One episode of `Sokoban`."""

    __slots__ = ("boxes", "player", "room")

    room: Room
    player: int
    boxes: Cells

    def begin(self, task: Task, member: int) -> str:
        level = self.env.level(task.seed)
        self.room, self.player, self.boxes = level.room, level.player, level.boxes
        return self._show(self.room.draw(self.player, self.boxes))

    def play(self, response: str) -> Played:
        env = self.env
        read = read_reply(response, ACTIONS, env.actions_per_turn)
        before = _places(self.room, self.player, self.boxes)
        executed: list[str] = []
        rewards: dict[str, float] = {}
        while len(executed) < len(read.actions) and self.boxes != self.room.targets:
            name = read.actions[len(executed)]
            executed.append(name)
            self._move(_NUMBER[name], rewards)
        solved = self.boxes == self.room.targets
        if executed:
            rewards["step"] = STEP_REWARD * len(executed)
        if solved:
            rewards["solved"] = SOLVED_REWARD
        grid = self.room.draw(self.player, self.boxes)
        after = _places(self.room, self.player, self.boxes)
        return Played(
            fault=read.fault,
            rewards=rewards,
            ending=Ending.SOLVED if solved else None if self.turns_left else Ending.OUT_OF_TURNS,
            progress=self._on_targets() / env.boxes,
            actions=tuple(executed),
            note=fault_line(read, env.brief),
            shown=self._show(grid),
            effect=remarks(f"{' '.join(executed) or 'nothing executed'}: {before} -> {after}", read.fault),
            state=grid,
        )

    def images(self) -> tuple[Image, ...]:
        if not has_picture(self.env.observation):
            return ()
        return (room_picture(self.room.draw(self.player, self.boxes), self.env.cell),)

    def _on_targets(self) -> int:
        return sum(box in self.room.targets for box in self.boxes)

    def _move(self, action: int, rewards: dict[str, float]) -> None:
        before = self._on_targets()
        self.player, self.boxes = self.room.move(self.player, self.boxes, action)
        gained = self._on_targets() - before
        if gained:
            component = "box_on" if gained > 0 else "box_off"
            rewards[component] = rewards.get(component, 0.0) + gained * BOX_REWARD

    def _show(self, grid: str) -> str:
        """The end of every observation: the limits and the state."""
        env, room = self.env, self.room
        lines = [self.limits(env.actions_per_turn, f"Actions per turn: at most {env.actions_per_turn}.")]
        shown = text_form(env.observation)
        if shown in ("grid", "both"):
            lines.append(grid)
        if shown in ("coordinates", "both"):
            line = _places(room, self.player, self.boxes)
            if shown == "coordinates":
                inner = range(1, room.size - 1)
                cells = [row * room.size + column for row in inner for column in inner]
                line += "".join(f" {_place(room, '#', cell)}" for cell in cells if room.walls[cell])
            lines.append(line)
        return "\n".join(lines)


def _place(room: Room, symbol: str, cell: int) -> str:
    return f"{symbol} {cell // room.size} {cell % room.size}"


def _places(room: Room, player: int, boxes: Cells) -> str:
    places = [_place(room, "P", player)]
    places += [_place(room, "X", box) for box in boxes]
    places += [_place(room, "O", target) for target in room.targets]
    return " ".join(places)
