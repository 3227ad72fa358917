"""How a person fills a Sudoku grid: one cell at a time, the most certain first, and why.

If all digits on the grid are right, the next digit is right, whether or not the stated reason suffices.
"""

from __future__ import annotations

from collections.abc import Sequence

from heedful.envs.sudoku.grids import Puzzle, candidates, units_of


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
        for name, cells in units_of(puzzle.size).groups:
            digit = puzzle.solution[cell]
            alone = all(digit not in left[other] for other in cells if other in left and other != cell)
            if cell in cells and alone:
                return cell, digit, f"{_view(puzzle, grid, cell)} only one in {name}"
    cell = next(iter(left))
    choice = " or ".join(map(str, left[cell]))
    return cell, puzzle.solution[cell], f"{_view(puzzle, grid, cell)} try {choice}"


def _view(puzzle: Puzzle, grid: Sequence[int], cell: int) -> str:
    """The digits in the cell's row, column and box."""
    parts = []
    for name, cells in units_of(puzzle.size).groups:
        if cell in cells:
            digits = "".join(str(grid[other]) for other in cells if grid[other])
            parts.append(f"{name.split()[0].replace('column', 'col')} {digits or '_'}")
    return " ".join(parts)
