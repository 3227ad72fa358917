"""Sokoban: push every box onto a target. A wrong push may be final.

Every task can be solved within the turns and actions that the prompt states. There is no noise: (task, replies)
replays an episode exactly.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import Count, Share
from heedful.envs.common.base import check_range
from heedful.envs.common.board import TRIES, BoardEnvironment, BoardEpisode
from heedful.envs.common.demonstrations import PLAN_SHOWN
from heedful.envs.common.pictures import Palette
from heedful.envs.sokoban.levels import ACTIONS, Cells, Level, Room, draw_level
from heedful.envs.sokoban.picture import LEGEND, PALETTE
from heedful.types import Ending, Task

_LARGEST = 32
"""Most rows: drawing a level takes time with the square of them."""
_PATIENCE = 3
"""Demonstrations look for solutions of at most this many times the budget, before a state counts as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sokoban(BoardEnvironment):
    """Push the boxes onto the targets. At the defaults a random policy solves about 1 in 50.

    Reward components, those of gym-sokoban: `step` (-0.1 per executed action), `box_on` (+1 for each push of a box onto
    a target), `box_off` (-1 for each push off one), `solved` (+10), and `format` (minus the penalty, once per faulty
    turn). Outcome: 1 if every box stands on a target, else 0. Progress: the share of boxes on targets at the end.
    """

    name: ClassVar[str] = "sokoban"
    actions: ClassVar[tuple[str, ...]] = ACTIONS
    move_word: ClassVar[str] = "actions"
    palette: ClassVar[Palette] = PALETTE
    legend: ClassVar[str] = LEGEND
    grid_words: ClassVar[str] = (
        "# is a wall, _ is floor, P is you, X is a box, O is a target, * is a box on a target and S is you on a target"
    )
    place_words: ClassVar[str] = "P is you, X is a box, O is a target"
    hidden_words: ClassVar[str] = "# is a wall inside the room"
    step_reward: ClassVar[float] = -0.1
    solved_reward: ClassVar[float] = 10.0

    size: Annotated[int, Interval(ge=4, le=_LARGEST)] = 6
    """Rows and columns of the room, the walls around it included, 32 at most."""
    boxes: int = 1
    """Boxes, and as many targets."""
    walls: Share = 0.1
    """Probability that an inner cell is a wall."""
    shortest: Count = 4

    def check(self) -> None:
        check_range(self.name, "boxes", self.boxes, 1, (self.size - 2) ** 2 - 1)
        BoardEnvironment.check(self)

    @property
    def summary(self) -> str:
        boxes = "1 box" if self.boxes == 1 else f"{self.boxes} boxes"
        return f"Push {boxes} onto targets in a {self.size}x{self.size} room."

    def start_state(self, seed: int, tries: int = TRIES) -> Level:
        return draw_level(self.size, self.boxes, self.walls, (self.shortest, self.budget), seed, tries)

    def right_actions(self, task: Task, before: Sequence[Sequence[str]] = ()) -> dict[str, float] | None:
        """The first actions of shortest solutions. `None` where no solution of `_PATIENCE` x the budget is left."""
        level = self.start_state(task.seed)
        room, state = level.room, (level.player, level.boxes)
        for action in (action for turn in before for action in turn):
            state = room.move(*state, ACTIONS.index(action))
        shortest = room.solve(*state, _PATIENCE * self.budget)
        if shortest is None:
            return None
        after = {action: room.move(*state, number) for number, action in enumerate(ACTIONS)}
        left = len(shortest) - 1
        return {action: 1.0 for action, reached in after.items() if room.solve(*reached, left) is not None}

    def shortest_of(self, state: Level) -> int:
        return state.shortest

    def saved(self, state: Level, actions: Sequence[int]) -> float:
        room, reached = state.room, (state.player, state.boxes)
        for action in actions:
            if reached[1] != room.targets:
                reached = room.move(*reached, action)
        left = room.solve(*reached, state.shortest - 1)  # a longer way has saved nothing
        return 0.0 if left is None else state.shortest - len(left)

    def episode(self) -> SokobanEpisode:
        return SokobanEpisode(self)

    def aim(self) -> str:
        boxes = "a box onto a target" if self.boxes == 1 else f"{self.boxes} boxes onto {self.boxes} targets"
        return f"You push {boxes} in a room of {self.size} rows and {self.size} columns, with walls all around."

    def move_rules(self) -> list[str]:
        return [
            f"The actions are {', '.join(ACTIONS)}. Each moves you by one cell. If a box stands there, you push it "
            "on by one cell. You stay in place if a wall is there, or if a wall or another box is behind the box. You "
            "cannot pull."
        ]


class SokobanEpisode(BoardEpisode[Sokoban]):
    """One episode of `Sokoban`."""

    __slots__ = ("boxes", "player", "room")

    room: Room
    player: int
    boxes: Cells

    def begin(self, task: Task, member: int) -> str:
        level = self.env.start_state(task.seed)
        self.room, self.player, self.boxes = level.room, level.player, level.boxes
        return self.show()

    def grid(self) -> str:
        return self.room.draw(self.player, self.boxes)

    def places(self) -> str:
        things = [("P", self.player), *(("X", box) for box in self.boxes), *(("O", cell) for cell in self.room.targets)]
        return " ".join(self.place(symbol, cell) for symbol, cell in things)

    def hidden(self) -> str:
        size = self.room.size
        inner = [cell for cell in range(size * size) if 0 < cell // size < size - 1 and 0 < cell % size < size - 1]
        return "".join(f" {self.place('#', cell)}" for cell in inner if self.room.walls[cell])

    def over(self) -> Ending | None:
        return Ending.SOLVED if self.boxes == self.room.targets else None

    def move(self, action: int, rewards: dict[str, float]) -> None:
        before = self._on_targets()
        self.player, self.boxes = self.room.move(self.player, self.boxes, action)
        gained = self._on_targets() - before
        if gained:
            component = "box_on" if gained > 0 else "box_off"
            rewards[component] = rewards.get(component, 0.0) + gained

    def progress(self) -> float:
        return self._on_targets() / self.env.boxes

    def plan(self, rng: random.Random) -> list[str]:
        """A shortest solution. If a random plan has made the level unsolvable, the plans that follow are random too."""
        best = self.room.solve(self.player, self.boxes, _PATIENCE * self.env.budget)
        shown = max(PLAN_SHOWN, self.env.actions_per_turn)
        return [rng.choice(ACTIONS) for _ in range(shown)] if best is None else best

    def _on_targets(self) -> int:
        return sum(box in self.room.targets for box in self.boxes)
