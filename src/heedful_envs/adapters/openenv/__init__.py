"""Environments behind a server that speaks the protocol of OpenEnv."""

from heedful_envs.adapters.openenv.environment import OpenEnv

__all__ = ["OpenEnv"]
