"""Sudoku grids of 4x4, 6x6 and 9x9: the rules, an exact solver, and puzzles with one solution.

A puzzle has exactly one solution. For every emptied cell, each other digit that the rules allow was tried, and none
has a solution.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from heedful.envs.common.board import grid_of

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

    groups: tuple[tuple[str, tuple[int, ...]], ...]
    """Each row, column and box by name, with its cells."""
    of: tuple[tuple[int, int, int], ...]
    """Per cell, the numbers of its row, column and box in `groups`."""
    peers: tuple[tuple[int, ...], ...]
    """Per cell, the other cells of its row, column and box."""


@lru_cache(maxsize=len(BOXES))
def units_of(size: int) -> Units:
    """The rows, columns and boxes of a grid of this size."""
    high, wide = BOXES[size]
    places = [divmod(cell, size) for cell in range(size * size)]
    of = tuple((r, size + c, 2 * size + r // high * (size // wide) + c // wide) for r, c in places)
    names = [f"{kind} {number + 1}" for kind in ("row", "column", "box") for number in range(size)]
    groups = tuple(
        (name, tuple(cell for cell, units in enumerate(of) if number in units)) for number, name in enumerate(names)
    )
    peers = tuple(
        tuple(other for other, theirs in enumerate(of) if other != cell and set(theirs) & set(units))
        for cell, units in enumerate(of)
    )
    return Units(groups, of, peers)


def groups_of(size: int, cell: int) -> list[tuple[str, tuple[int, ...]]]:
    """The row, the column and the box of a cell, by name, with their cells."""
    units = units_of(size)
    return [units.groups[number] for number in units.of[cell]]


def draw(size: int, grid: Sequence[int]) -> str:
    """The grid as lines of digits."""
    return grid_of((str(digit) if digit else "_" for digit in grid), size)


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
    of = units_of(size).of
    filled, taken = list(grid), [0] * (3 * size)
    for cell, digit in enumerate(grid):
        for unit in of[cell] if digit else ():
            if taken[unit] >> digit & 1:
                return
            taken[unit] |= 1 << digit
    empty = [cell for cell, digit in enumerate(grid) if not digit]
    everything = (1 << (size + 1)) - 2

    def fill() -> Iterator[Grid]:
        if not empty:
            yield tuple(filled)
            return
        fewest, chosen, left = size + 1, -1, 0
        for index, cell in enumerate(empty):
            row, column, box = of[cell]
            free = everything & ~(taken[row] | taken[column] | taken[box])
            count = free.bit_count()
            if count < fewest:
                fewest, chosen, left = count, index, free
                if count <= 1:
                    break
        cell = empty.pop(chosen)
        digits = [digit for digit in range(1, size + 1) if left >> digit & 1]
        if rng is not None:
            rng.shuffle(digits)
        for digit in digits:
            filled[cell] = digit
            for unit in of[cell]:
                taken[unit] ^= 1 << digit
            yield from fill()
            for unit in of[cell]:
                taken[unit] ^= 1 << digit
        filled[cell] = 0
        empty.insert(chosen, cell)

    yield from fill()


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
