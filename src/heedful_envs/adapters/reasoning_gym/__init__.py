"""Datasets of reasoning-gym, answered in free text."""

from heedful_envs.adapters.reasoning_gym.environment import ReasoningGym

__all__ = ["ReasoningGym"]
