"""Maps of the frozen lake: how they are drawn and solved, and how the player slips.

Every map has a shortest solution within the given range, and is a pure function of its arguments.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from heedful.envs.common.board import grid_of
from heedful.envs.common.tasks import task_of
from heedful.types import Task

ACTIONS = ("Left", "Down", "Right", "Up")
"""Numbered as in gymnasium. The neighbours of an action in this circle are its sideways directions."""

_DISPLACEMENTS = ((0, -1), (1, 0), (0, 1), (-1, 0))
_UNREACHABLE = -1


@dataclass(frozen=True, slots=True)
class Lake:
    """One start state, with what the solver knows about it. Cells are numbered row by row."""

    task: Task
    size: int
    holes: tuple[bool, ...]
    start: int
    goal: int
    distances: tuple[int, ...]
    """Moves from each cell to the goal. -1 if there is no way."""

    def plan(self, cell: int) -> list[str]:
        """A shortest way to the goal, ties broken in the order of `ACTIONS`."""
        moves = []
        targets = neighbours(self.size)
        while cell != self.goal:
            for action, target in enumerate(targets[cell]):
                if self.distances[target] == self.distances[cell] - 1:
                    moves.append(ACTIONS[action])
                    cell = target
                    break
        return moves

    def holes_beside(self, cell: int, plan: Sequence[str]) -> list[int]:
        """The holes next to the cells that `plan` goes over from `cell`, in the order in which it passes them."""
        targets = neighbours(self.size)
        way = [cell]
        for action in plan:
            way.append(targets[way[-1]][ACTIONS.index(action)])
        beside = [target for passed in way for target in targets[passed] if self.holes[target]]
        return list(dict.fromkeys(beside))

    def draw(self, player: int) -> str:
        """The grid, one row per line."""
        cells = ["O" if hole else "_" for hole in self.holes]
        cells[self.goal] = "G"
        cells[player] = "V" if player == self.goal else "X" if self.holes[player] else "P"
        return grid_of(cells, self.size)


def slipped(action: int, slip: float, draw: float) -> int:
    """The action that happens for a uniform draw in [0, 1)."""
    if draw < slip / 2:
        return (action - 1) % 4
    return (action + 1) % 4 if draw < slip else action


@lru_cache(maxsize=64)
def neighbours(size: int) -> tuple[tuple[int, ...], ...]:
    """For each cell the cell each action leads to. At the edge the cell itself."""
    return tuple(
        tuple(
            min(max(row + down, 0), size - 1) * size + min(max(column + right, 0), size - 1)
            for down, right in _DISPLACEMENTS
        )
        for row in range(size)
        for column in range(size)
    )


@lru_cache(maxsize=16_384)
def draw_lake(size: int, frozen: float, shortest: int, longest: int, seed: int, tries: int) -> Lake:
    """Draw maps from the seed's stream until one has a shortest solution of `shortest` to `longest` moves."""
    rng = random.Random(f"frozen_lake:{seed}")
    cells = size * size
    for _ in range(tries):
        holes = [rng.random() >= frozen for _ in range(cells)]
        start = rng.randrange(cells)
        goal = (start + 1 + rng.randrange(cells - 1)) % cells
        holes[start] = holes[goal] = False
        distances = _distances(size, holes, goal)
        if shortest <= distances[start] <= longest:
            drawn = Lake(Task("", seed, ""), size, tuple(holes), start, goal, distances)
            task = task_of("frozen_lake", f"{size}\n{drawn.draw(start)}", seed)
            return Lake(task, size, drawn.holes, start, goal, distances)
    raise ValueError(
        f"frozen_lake: none of {tries:,} lakes of size {size} with frozen={frozen:g} can be crossed in {shortest} to "
        f"{longest} moves, so there is no task that can be solved within its limits. Change size, frozen, shortest, "
        "turns or actions_per_turn."
    )


def _distances(size: int, holes: list[bool], goal: int) -> tuple[int, ...]:
    """Moves from each cell to the goal by breadth-first search (moves over ice can be reversed)."""
    targets = neighbours(size)
    distances = [_UNREACHABLE] * len(holes)
    distances[goal] = 0
    frontier = [goal]
    while frontier:
        following = []
        for cell in frontier:
            for target in targets[cell]:
                if distances[target] == _UNREACHABLE and not holes[target]:
                    distances[target] = distances[cell] + 1
                    following.append(target)
        frontier = following
    return tuple(distances)


MOST_WORK = 20_000
"""Most sequences of a turn x cells of the lake."""


def best_success(lake: Lake, slip: float, turns: int, per_turn: int) -> float | None:
    """The probability that the best policy reaches the goal within `turns` turns of 1 to `per_turn` actions.

    Without slip it is 1 on every lake whose shortest way fits into the budget. `None`: the lake is slippery, and large
    boards or long turns are beyond `MOST_WORK`.
    """
    if slip == 0:
        return float(0 <= lake.distances[lake.start] <= turns * per_turn)
    if len(ACTIONS) ** per_turn * lake.size**2 > MOST_WORK:
        return None
    values = [float(cell == lake.goal) for cell in range(lake.size**2)]
    for _ in range(turns):
        values = _best_turn(lake, slip, values, per_turn)
    return values[lake.start]


def right_under_slip(lake: Lake, slip: float, turns: int, per_turn: int) -> dict[str, float] | None:
    """The first actions with which the best first turn can begin, 1 each. `None`: beyond `MOST_WORK`."""
    if len(ACTIONS) ** per_turn * lake.size**2 > MOST_WORK:
        return None
    values = [float(cell == lake.goal) for cell in range(lake.size**2)]
    for _ in range(turns - 1):
        values = _best_turn(lake, slip, values, per_turn)
    after = found = [values]
    for _ in range(per_turn - 1):
        after = [_before(lake, slip, following, action) for following in after for action in range(len(ACTIONS))]
        found = [*found, *after]
    best = [max(_before(lake, slip, each, action)[lake.start] for each in found) for action in range(len(ACTIONS))]
    return {action: 1.0 for action, value in zip(ACTIONS, best, strict=True) if value > max(best) - 1e-9}


def _best_turn(lake: Lake, slip: float, values: Sequence[float], actions: int) -> list[float]:
    """The value of each cell before a turn of at most so many actions, given the values after it."""
    best = list(values)  # where the episode is over, and for a turn without an action
    after = [list(values)]
    for _ in range(actions):
        after = [_before(lake, slip, following, action) for following in after for action in range(len(ACTIONS))]
        for sequence in after:
            best = [max(pair) for pair in zip(best, sequence, strict=True)]
    return best


def _before(lake: Lake, slip: float, values: Sequence[float], action: int) -> list[float]:
    """The value of each cell before one action, given the values after it. Goal and holes end the episode."""
    left, right = (action - 1) % len(ACTIONS), (action + 1) % len(ACTIONS)
    return [
        values[cell]
        if cell == lake.goal or lake.holes[cell]
        else (1 - slip) * values[targets[action]] + slip / 2 * (values[targets[left]] + values[targets[right]])
        for cell, targets in enumerate(neighbours(lake.size))
    ]
