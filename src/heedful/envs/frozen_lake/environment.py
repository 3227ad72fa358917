"""FrozenLake: cross a random lake to the goal without falling into a hole.

Every task can be solved within the turns and actions that the prompt states. (task, member, replies) replays an
episode exactly.

The dynamics are gymnasium's FrozenLake on random maps with random distinct start and goal cells: the intended move
happens with probability 1 - slip (gymnasium's `success_rate`), each of the two sideways moves with slip / 2.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Interval

from heedful.boundary import Share
from heedful.envs.common.board import TRIES, BoardEnvironment, BoardEpisode
from heedful.envs.common.demonstrations import listed
from heedful.envs.common.pictures import Palette
from heedful.envs.frozen_lake.maps import (
    ACTIONS,
    Lake,
    best_success,
    draw_lake,
    neighbours,
    right_under_slip,
    slipped,
)
from heedful.envs.frozen_lake.picture import LEGEND, PALETTE
from heedful.types import Ending, Task

_LARGEST = 50
"""Most rows: drawing a lake takes time with the square of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenLake(BoardEnvironment):
    """Cross a frozen lake. At the defaults a random policy solves about 1 task in 7.

    Reward components: `solved` (+1 on reaching the goal) and `format` (minus the penalty, once per faulty turn).
    Outcome: 1 on the goal, else 0. Progress: 1 - remaining / initial shortest distance, cut to [0, 1]. 0 in a hole.
    """

    name: ClassVar[str] = "frozen_lake"
    english: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ACTIONS
    tries_at_construction: ClassVar[int] = 2_000
    palette: ClassVar[Palette] = PALETTE
    legend: ClassVar[str] = LEGEND
    grid_words: ClassVar[str] = "P is you, _ is ice, O is a hole and G is the goal"
    place_words: ClassVar[str] = "P is you, G is the goal"
    hidden_words: ClassVar[str] = "O is a hole"

    size: Annotated[int, Interval(ge=2, le=_LARGEST)] = 4
    """Rows and columns of the lake, 50 at most."""
    slip: Share = 0.0
    """Probability of not going where intended, split equally over the two sideways directions."""
    frozen: Share = 0.8
    """Probability that a cell is ice, not a hole."""
    shared_noise: bool = False
    """Give all members of a group the same noise (for comparison with published set-ups)."""

    @property
    def summary(self) -> str:
        return f"Cross a {self.size}x{self.size} lake without falling into a hole; {self.slip:.0%} slip."

    def start_state(self, seed: int, tries: int = TRIES) -> Lake:
        return draw_lake(self.size, self.frozen, self.shortest, self.budget, seed, tries)

    def episode(self) -> FrozenLakeEpisode:
        return FrozenLakeEpisode(self)

    @property
    def noisy(self) -> bool:
        return self.slip > 0

    def right_actions(self, task: Task, before: Sequence[Sequence[str]] = ()) -> dict[str, float] | None:
        """The first moves of shortest ways. On slippery ice the moves that begin a turn with the best chance of the
        goal, in the first turn alone: later cells depend on the slips."""
        lake = self.start_state(task.seed)
        if self.slip > 0:
            return None if before else right_under_slip(lake, self.slip, self.turns, self.actions_per_turn)
        cell = lake.start
        for action in (action for turn in before for action in turn):
            cell = neighbours(lake.size)[cell][ACTIONS.index(action)]
        targets = zip(ACTIONS, neighbours(lake.size)[cell], strict=True)
        return {action: 1.0 for action, target in targets if lake.distances[target] == lake.distances[cell] - 1}

    def shortest_of(self, state: Lake) -> int:
        return state.distances[state.start]

    def saved(self, state: Lake, actions: Sequence[int]) -> float | None:
        if self.slip > 0:
            return None
        cell = state.start
        for action in actions:
            if cell != state.goal:
                cell = neighbours(state.size)[cell][action]
            if state.holes[cell]:
                return 0.0
        return state.distances[state.start] - state.distances[cell]

    def best_success(self, task: Task) -> float | None:
        return best_success(self.start_state(task.seed), self.slip, self.turns, self.actions_per_turn)

    def aim(self) -> str:
        return (
            f"You cross a frozen lake of {self.size} rows and {self.size} columns. "
            "Reach the goal without stepping into a hole."
        )

    def move_rules(self) -> list[str]:
        slippery = (
            f"The ice is slippery: with probability {self.slip:g} a move goes to one of the two sides of the "
            "intended direction instead, to each equally often."
        )
        return [
            f"The actions are {', '.join(ACTIONS)}. Each moves you by one cell; at the edge of the lake you stay in "
            "place.",
            *([slippery] if self.slip > 0 else []),
            "Stepping into a hole ends the attempt.",
        ]


class FrozenLakeEpisode(BoardEpisode[FrozenLake]):
    """One episode of `FrozenLake`."""

    __slots__ = ("_noise", "_noise_name", "lake", "player")

    remarks_on: ClassVar[Mapping[Ending, str]] = {Ending.SOLVED: ", goal", Ending.FAILED: ", hole"}

    lake: Lake
    player: int

    def begin(self, task: Task, member: int) -> str:
        self.lake = self.env.start_state(task.seed)
        self.player = self.lake.start
        self._noise: random.Random | None = None
        self._noise_name = str(task.seed) if self.env.shared_noise else f"{task.seed}:{member}"
        return self.show()

    def grid(self) -> str:
        return self.lake.draw(self.player)

    def places(self) -> str:
        return f"{self.place('P', self.player)} {self.place('G', self.lake.goal)}"

    def moved(self) -> str:
        return self.place("P", self.player)

    def hidden(self) -> str:
        return "".join(f" {self.place('O', cell)}" for cell, hole in enumerate(self.lake.holes) if hole)

    def over(self) -> Ending | None:
        if self.player == self.lake.goal:
            return Ending.SOLVED
        return Ending.FAILED if self.lake.holes[self.player] else None

    def move(self, action: int, rewards: dict[str, float]) -> None:
        slip = self.env.slip
        if slip > 0:
            if self._noise is None:
                self._noise = random.Random(self._noise_name)
            action = slipped(action, slip, self._noise.random())
        self.player = neighbours(self.lake.size)[self.player][action]

    def progress(self) -> float:
        if self.lake.holes[self.player]:
            return 0.0
        return max(0.0, 1.0 - self.lake.distances[self.player] / self.lake.distances[self.lake.start])

    def plan(self, rng: random.Random) -> list[str]:
        return self.lake.plan(self.player)

    def in_english(self, plan: Sequence[str], words: random.Random) -> str:
        return crossing_thought(self.lake, self.player, plan, words)


_MOST_HOLES = 2
"""Holes that a thought names: the first ones beside the shortest way of the solver."""


def crossing_thought(lake: Lake, player: int, plan: Sequence[str], words: random.Random) -> str:
    """Where the player and the goal are, the holes beside a shortest way, and the moves of `plan`."""
    place = words.choice(("row {} column {}", "row {}, column {}", "({}, {})"))

    def at(cell: int) -> str:
        return place.format(*divmod(cell, lake.size))

    (row, column), (goal_row, goal_column) = divmod(player, lake.size), divmod(lake.goal, lake.size)
    down, right = goal_row - row, goal_column - column
    parts = [f"{abs(down)} {'down' if down > 0 else 'up'}"] if down else []
    parts += [f"{abs(right)} {'right' if right > 0 else 'left'}"] if right else []
    here, goal, offset = at(player), at(lake.goal), listed(parts)  # `1 down and 2 right`
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
