"""Rollouts: a policy plays the episodes of an environment. Torch-free.

groups = LockStep()(policy, Request(env.episode, tasks, group_size=8, max_turns=env.turns))
"""

from __future__ import annotations

from collections.abc import Mapping

from heedful.rollout.asynchronous import Asynchronous
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.rollout.lock_step import LockStep
from heedful.rollout.overlong import shape_overlong
from heedful.rollout.player import Player
from heedful.rollout.refill import Collection, collect_until_enough
from heedful.rollout.request import Collector, Request
from heedful.rollout.workers import isolated

__all__ = [
    "COLLECTORS",
    "FULL_HISTORY",
    "Asynchronous",
    "Collection",
    "Collector",
    "Context",
    "LockStep",
    "Player",
    "Request",
    "collect_until_enough",
    "isolated",
    "shape_overlong",
]

COLLECTORS: Mapping[str, type] = {"lock_step": LockStep, "async": Asynchronous}
"""Collectors by the name that configurations and the command line use."""
