"""The reading of placements in a reply: `<answer>r1c2=3 || r2c4=1</answer>`.

Every text is read without raising. The valid prefix up to the first fault is carried out.

A placement names row, column and digit, in either case and with spaces between its parts. Rows and columns count from
1 at the top left. Digits are 0 to 9 of ASCII. What is no placement, lies outside the grid, is empty beside a separator
or exceeds the allowed number is a fault, as is every fault of an answer in free text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from heedful.envs.common.actions import SEPARATOR
from heedful.envs.common.answers import read_answer
from heedful.envs.sudoku.grids import Puzzle, candidates, groups_of, place

LONGEST_PLACEMENT = 20
"""Characters of an answer per placement, separator and spaces included. An answer that is longer is not read."""

_PLACEMENT = re.compile(r"r *([0-9]) *c *([0-9]) *= *([0-9])", re.IGNORECASE)


class Placement(NamedTuple):
    """A digit for a cell. 0 takes the agent's own digit back."""

    cell: int
    digit: int


class ReadPlacements(NamedTuple):
    """The placements to carry out, and the first fault of the reply."""

    placements: tuple[Placement, ...]
    """The valid prefix."""
    fault: str
    kind: str


def write_placements(size: int, placements: Sequence[Placement]) -> str:
    """Placements as an answer holds them: `r1c2=3 || r2c4=1`."""
    return f" {SEPARATOR} ".join(f"{place(size, one.cell)}={one.digit}" for one in placements)


def read_placements(reply: str, size: int, most: int) -> ReadPlacements:
    """Read one reply for a grid of this size. `most` placements are allowed in one turn."""
    answer = read_answer(reply, LONGEST_PLACEMENT * (most + 1))
    fault, kind = answer.fault, answer.kind
    placements: list[Placement] = []
    for number, part in enumerate([] if fault else answer.text.split(SEPARATOR), 1):
        found = _PLACEMENT.fullmatch(part.strip())
        row, column, digit = map(int, found.groups()) if found else (0, 0, 0)
        if number > most:
            fault, kind = f"there are more than {most} placement{'s' if most > 1 else ''}", "too many"
        elif not part.strip():
            fault, kind = f"a placement is empty beside a {SEPARATOR}", "empty placement"
        elif found is None:
            fault, kind = f"placement {number} cannot be read (expected one like r1c{size}=3)", "no placement"
        elif not (1 <= row <= size and 1 <= column <= size and digit <= size):
            fault, kind = f"placement {number} lies outside: rows, columns and digits go from 1 to {size}", "outside"
        else:
            placements.append(Placement((row - 1) * size + column - 1, digit))
            continue
        break
    return ReadPlacements(tuple(placements), fault, kind)


def next_placement(puzzle: Puzzle, grid: Sequence[int]) -> tuple[int, int, str]:
    """The cell to fill next, its digit, and the thought that leads there, without the digit.

    A wrong digit on the grid is taken back first (digit 0). Then come, in reading order, cells that their row, column
    and box leave a single digit. Cells that are the only place for a digit in one of these, and else the first one.
    """
    for cell in puzzle.empties:
        if grid[cell] and grid[cell] != puzzle.solution[cell]:
            return cell, 0, "is wrong"
    left: dict[int, tuple[int, ...]] = {}
    for cell in puzzle.empties:
        if not grid[cell]:
            left[cell] = candidates(puzzle.size, grid, cell)
            if len(left[cell]) == 1:
                return cell, left[cell][0], _view(puzzle, grid, cell)
    for cell in left:
        digit = puzzle.solution[cell]
        for name, cells in groups_of(puzzle.size, cell):
            if all(digit not in left[other] for other in cells if other in left and other != cell):
                return cell, digit, f"{_view(puzzle, grid, cell)} only one in {name}"
    cell = next(iter(left))
    choice = " or ".join(map(str, left[cell]))
    return cell, puzzle.solution[cell], f"{_view(puzzle, grid, cell)} try {choice}"


def _view(puzzle: Puzzle, grid: Sequence[int], cell: int) -> str:
    """The digits in the cell's row, column and box."""
    parts = []
    for name, cells in groups_of(puzzle.size, cell):
        digits = "".join(str(grid[other]) for other in cells if grid[other])
        parts.append(f"{name.split()[0].replace('column', 'col')} {digits or '_'}")
    return " ".join(parts)
