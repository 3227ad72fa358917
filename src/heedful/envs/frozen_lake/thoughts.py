"""The thoughts in English of demonstrations of FrozenLake."""

from __future__ import annotations

import random
from collections.abc import Sequence

from heedful.envs.common.english import listed
from heedful.envs.frozen_lake.maps import Lake

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
