"""Environments of gymnasium with a discrete action space, as games in words."""

from heedful_envs.adapters.gymnasium.environment import Gymnasium

__all__ = ["Gymnasium"]
