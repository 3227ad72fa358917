"""Sudoku of 4x4, 6x6 and 9x9 cells."""

from heedful.envs.sudoku.environment import Sudoku

__all__ = ["Sudoku"]
