"""Games of textarena for one player."""

from heedful_envs.adapters.textarena.environment import TextArena

__all__ = ["TextArena"]
