"""Sokoban: push every box onto a target."""

from heedful.envs.sokoban.environment import Sokoban

__all__ = ["Sokoban"]
