"""Countdown: reach a target from a few numbers by arithmetic."""

from heedful.envs.countdown.environment import Countdown

__all__ = ["Countdown"]
