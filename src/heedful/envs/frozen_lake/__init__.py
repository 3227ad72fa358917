"""FrozenLake: cross a random lake to the goal without falling into a hole."""

from heedful.envs.frozen_lake.environment import FrozenLake

__all__ = ["FrozenLake"]
