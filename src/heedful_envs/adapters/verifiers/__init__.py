"""Environments of the library verifiers, scored by their own rubrics."""

from heedful_envs.adapters.verifiers.environment import Verifiers

__all__ = ["Verifiers"]
