"""Sudoku grids of 4x4, 6x6 and 9x9: the rules, an exact solver, and puzzles with one solution.

A puzzle has exactly one solution. For every emptied cell, each other digit that the rules allow was tried, and none
has a solution.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

Grid = tuple[int, ...]
"""Digits row by row. 0 = empty."""

BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
"""Size -> rows and columns of a box."""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """Givens, and the only grid that completes them."""

    size: int
    givens: Grid
    solution: Grid

    @property
    def empties(self) -> tuple[int, ...]:
        """The cells to fill, in reading order."""
        return tuple(cell for cell, digit in enumerate(self.givens) if not digit)


@dataclass(frozen=True, slots=True)
class Units:
    """The rows, columns and boxes of one size, as numbers of cells."""

    size: int
    row: tuple[int, ...]
    """Per cell."""
    column: tuple[int, ...]
    box: tuple[int, ...]
    peers: tuple[tuple[int, ...], ...]
    """Per cell, the other cells of its row, column and box."""
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    """Each row, column and box by name, with its cells."""


@lru_cache(maxsize=len(BOXES))
def units_of(size: int) -> Units:
    """The rows, columns and boxes of a grid of this size."""
    high, wide = BOXES[size]
    cells = range(size * size)
    row = tuple(cell // size for cell in cells)
    column = tuple(cell % size for cell in cells)
    box = tuple(row[cell] // high * (size // wide) + column[cell] // wide for cell in cells)
    peers = tuple(
        tuple(
            other
            for other in cells
            if other != cell and (row[other] == row[cell] or column[other] == column[cell] or box[other] == box[cell])
        )
        for cell in cells
    )
    groups = tuple(
        (f"{kind} {number + 1}", tuple(cell for cell in cells if of[cell] == number))
        for kind, of in (("row", row), ("column", column), ("box", box))
        for number in range(size)
    )
    return Units(size, row, column, box, peers, groups)


def draw(size: int, grid: Sequence[int], empty: str = "_") -> str:
    """The grid as lines of digits."""
    marks = [str(digit) if digit else empty for digit in grid]
    return "\n".join("".join(marks[start : start + size]) for start in range(0, size * size, size))


def place(size: int, cell: int) -> str:
    """The name of a cell, such as `r1c2`."""
    return f"r{cell // size + 1}c{cell % size + 1}"


def candidates(size: int, grid: Sequence[int], cell: int) -> tuple[int, ...]:
    """The digits that the row, the column and the box of a cell leave it."""
    taken = {grid[other] for other in units_of(size).peers[cell]}
    return tuple(digit for digit in range(1, size + 1) if digit not in taken)


def solutions(size: int, grid: Sequence[int], rng: random.Random | None = None) -> Iterator[Grid]:
    """All completions of a grid, found by filling the most constrained cell first. None if the givens conflict.

    With `rng` the digits of a cell are tried in random order, else from the smallest up.
    """
    units = units_of(size)
    rows, columns, boxes = [0] * size, [0] * size, [0] * size
    for cell, digit in enumerate(grid):
        bit = 1 << digit if digit else 0
        if bit & (rows[units.row[cell]] | columns[units.column[cell]] | boxes[units.box[cell]]):
            return
        rows[units.row[cell]] |= bit
        columns[units.column[cell]] |= bit
        boxes[units.box[cell]] |= bit
    filled = list(grid)
    empty = [cell for cell, digit in enumerate(grid) if not digit]
    yield from _fill(units, filled, empty, (rows, columns, boxes), rng)


def _fill(
    units: Units,
    filled: list[int],
    empty: list[int],
    taken: tuple[list[int], list[int], list[int]],
    rng: random.Random | None,
) -> Iterator[Grid]:
    if not empty:
        yield tuple(filled)
        return
    rows, columns, boxes = taken
    row, column, box = units.row, units.column, units.box
    everything = (1 << (units.size + 1)) - 2
    fewest, chosen, left = units.size + 1, -1, 0
    for index, cell in enumerate(empty):
        free = everything & ~(rows[row[cell]] | columns[column[cell]] | boxes[box[cell]])
        count = free.bit_count()
        if count < fewest:
            fewest, chosen, left = count, index, free
            if count <= 1:
                break
    cell = empty.pop(chosen)
    digits = [digit for digit in range(1, units.size + 1) if left >> digit & 1]
    if rng is not None:
        rng.shuffle(digits)
    r, c, b = row[cell], column[cell], box[cell]
    for digit in digits:
        bit = 1 << digit
        rows[r] |= bit
        columns[c] |= bit
        boxes[b] |= bit
        filled[cell] = digit
        yield from _fill(units, filled, empty, taken, rng)
        rows[r] ^= bit
        columns[c] ^= bit
        boxes[b] ^= bit
    filled[cell] = 0
    empty.insert(chosen, cell)


@lru_cache(maxsize=4096)
def draw_puzzle(size: int, least: int, most: int, seed: int, tries: int) -> Puzzle:
    """The puzzle of a seed, with `least` to `most` empty cells (drawn uniformly).

    Cells are emptied in random order wherever the solution stays the only one. Raises ValueError, with what to change,
    if none of `tries` full grids could be emptied that far.
    """
    rng = random.Random(f"sudoku:{seed}")
    for _ in range(tries):
        wanted = rng.randint(least, most)
        full = next(solutions(size, [0] * (size * size), rng))
        grid = list(full)
        order = rng.sample(range(size * size), size * size)
        left = wanted
        for cell in order:
            if not left:
                break
            if _stays_unique(size, grid, cell):
                grid[cell] = 0
                left -= 1
        if not left:
            return Puzzle(size, tuple(grid), full)
    raise ValueError(
        f"sudoku: none of {tries:,} grids of {size}x{size} kept a single solution when {least} to {most} cells were "
        "emptied. Lower least_empties and most_empties."
    )


def _stays_unique(size: int, grid: list[int], cell: int) -> bool:
    """Whether a grid with one solution still has one when this cell is emptied: no other digit in it has any."""
    digit = grid[cell]
    trial = list(grid)
    for other in candidates(size, grid, cell):
        trial[cell] = other
        if other != digit and next(solutions(size, trial), None) is not None:
            return False
    return True
