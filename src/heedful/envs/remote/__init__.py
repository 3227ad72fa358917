"""The environment that an environment server serves, played from here."""

from heedful.envs.remote.environment import Remote

__all__ = ["Remote"]
