"""Levels of Sokoban: drawn by reverse play, and checked by a solver.

The shortest solution of a level has a length within the given range. A level is a pure function of its arguments.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from functools import lru_cache

from heedful.envs.common.board import grid_of
from heedful.envs.common.tasks import task_of
from heedful.types import Task

ACTIONS = ("Up", "Down", "Left", "Right")

Cells = tuple[int, ...]
"""Cells in ascending order."""

_PULL = 0.7
"""Reverse play: chance that a player that steps away from a box pulls it along."""
_REVERSE_STEPS = 4
"""Reverse play: steps taken per action of the longest solution wanted (many of them are undone by later ones)."""
_MOST_REVERSE_STEPS = 20_000
"""Reverse play: more steps change the level no further."""
_DEAD = 10**9
"""More pushes than any solution has."""


@dataclass(frozen=True, slots=True)
class Room:
    """What does not move."""

    size: int
    walls: tuple[bool, ...]
    targets: Cells
    pushes: tuple[int, ...]
    """Fewest pushes that bring a lone box from each cell to the nearest target. `_DEAD` if none can."""

    def draw(self, player: int, boxes: Cells) -> str:
        """The grid, one row per line."""
        cells = ["#" if wall else "_" for wall in self.walls]
        for target in self.targets:
            cells[target] = "O"
        for box in boxes:
            cells[box] = "*" if cells[box] == "O" else "X"
        cells[player] = "S" if cells[player] == "O" else "P"
        return grid_of(cells, self.size)

    def move(self, player: int, boxes: Cells, action: int) -> tuple[int, Cells]:
        """The state after one action. The same state if a wall or a second box is in the way."""
        displacement = _displacements(self.size)[action]
        target = player + displacement
        if self.walls[target]:
            return player, boxes
        if target not in boxes:
            return target, boxes
        beyond = target + displacement
        if self.walls[beyond] or beyond in boxes:
            return player, boxes
        return target, tuple(sorted([*(box for box in boxes if box != target), beyond]))

    def solve(self, player: int, boxes: Cells, longest: int) -> list[str] | None:
        """A shortest solution by A*, or `None` if there is none of at most `longest` actions.

        The bound is the sum of the boxes' fewest pushes, each alone: it never exceeds the actions left, and one action
        lowers it by at most one, so the first solution found is a shortest.
        """
        start = (player, boxes)
        bound = self._bound(boxes)
        if bound > longest:
            return None
        reached = {start: 0}
        origin: dict[tuple[int, Cells], tuple[tuple[int, Cells], int]] = {}
        queue = [(bound, 0, start)]
        while queue:
            _, minus_depth, state = heapq.heappop(queue)
            depth = -minus_depth
            if state[1] == self.targets:
                actions = []
                while state in origin:
                    state, action = origin[state]
                    actions.append(ACTIONS[action])
                return actions[::-1]
            if depth > reached[state]:
                continue
            for action in range(4):
                following = self.move(*state, action)
                if reached.get(following, longest + 1) <= depth + 1:
                    continue
                bound = self._bound(following[1])
                if depth + 1 + bound <= longest:
                    reached[following] = depth + 1
                    origin[following] = (state, action)
                    heapq.heappush(queue, (depth + 1 + bound, -depth - 1, following))
        return None

    def _bound(self, boxes: Cells) -> int:
        return sum(self.pushes[box] for box in boxes)


@dataclass(frozen=True, slots=True)
class Level:
    """One start state."""

    task: Task
    room: Room
    player: int
    boxes: Cells
    shortest: int
    """Actions of a shortest solution."""


@lru_cache(maxsize=16_384)
def draw_level(size: int, boxes: int, walls: float, lengths: tuple[int, int], seed: int, tries: int) -> Level:
    """Draw rooms, played backwards, until the shortest solution has a length in `lengths` (ends included)."""
    rng = random.Random(f"sokoban:{seed}")
    for _ in range(tries):
        room = _draw_room(size, boxes, walls, rng)
        if room is None:
            continue
        player, placed = _play_backwards(room, min(_REVERSE_STEPS * lengths[1], _MOST_REVERSE_STEPS), rng)
        solution = room.solve(player, placed, lengths[1])
        if solution is not None and len(solution) >= lengths[0]:
            task = task_of("sokoban", f"{size}\n{room.draw(player, placed)}", seed)
            return Level(task, room, player, placed, len(solution))
    raise ValueError(
        f"sokoban: none of {tries:,} levels of size {size} with {boxes} boxes and walls={walls:g} can be solved in "
        f"{lengths[0]} to {lengths[1]} actions, so there is no task that can be solved within its limits. Change size, "
        "boxes, walls, shortest, turns or actions_per_turn."
    )


def _draw_room(size: int, boxes: int, share: float, rng: random.Random) -> Room | None:
    inner = range(1, size - 1)
    walls = [True] * (size * size)
    for row in inner:
        for column in inner:
            walls[row * size + column] = rng.random() < share
    floor = [cell for cell, wall in enumerate(walls) if not wall]
    if len(floor) <= boxes:
        return None
    targets = tuple(sorted(rng.sample(floor, boxes)))
    return Room(size, tuple(walls), targets, _fewest_pushes(size, walls, targets))


def _play_backwards(room: Room, steps: int, rng: random.Random) -> tuple[int, Cells]:
    """Begin with all boxes on targets. Walk at random, pulling the box that is left behind."""
    floor = [cell for cell, wall in enumerate(room.walls) if not wall and cell not in room.targets]
    player, boxes = rng.choice(floor), set(room.targets)
    displacements = _displacements(room.size)
    for _ in range(steps):
        displacement = displacements[rng.randrange(4)]
        pull = rng.random() < _PULL
        ahead, behind = player + displacement, player - displacement
        if room.walls[ahead] or ahead in boxes:
            continue
        if pull and behind in boxes:
            boxes.remove(behind)
            boxes.add(player)
        player = ahead
    return player, tuple(sorted(boxes))


def _displacements(size: int) -> tuple[int, ...]:
    """How far each action moves on numbered cells."""
    return (-size, size, -1, 1)


def _fewest_pushes(size: int, walls: list[bool], targets: Cells) -> tuple[int, ...]:
    """Breadth-first pulls of a lone box from all targets at once. The player may be on any cell but a wall."""
    pushes = [_DEAD] * len(walls)
    for target in targets:
        pushes[target] = 0
    frontier = list(targets)
    while frontier:
        following = []
        for cell in frontier:
            for displacement in _displacements(size):
                pulled = cell + displacement
                if not walls[pulled] and not walls[pulled + displacement] and pushes[pulled] == _DEAD:
                    pushes[pulled] = pushes[cell] + 1
                    following.append(pulled)
        frontier = following
    return tuple(pushes)
