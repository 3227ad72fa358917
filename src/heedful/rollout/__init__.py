"""Rollouts: a policy plays the episodes of an environment. Torch-free.

groups = LockStep()(policy, Request(env.episode, tasks, group_size=8, max_turns=env.turns))

Importing this package loads none of its modules. So a worker process of an environment, which needs one of them, starts
without numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.rollout.collectors import COLLECTORS, Asynchronous, Collector, LockStep, Request
    from heedful.rollout.context import FULL_HISTORY, Context
    from heedful.rollout.overlong import shape_overlong
    from heedful.rollout.player import Player, first_observation, made
    from heedful.rollout.refill import Collection, collect_until_enough
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
    "first_observation",
    "isolated",
    "made",
    "shape_overlong",
]

__getattr__ = lazily(
    __name__,
    {
        "first_observation": "heedful.rollout.player",
        "made": "heedful.rollout.player",
        "COLLECTORS": "heedful.rollout.collectors",
        "FULL_HISTORY": "heedful.rollout.context",
        "Asynchronous": "heedful.rollout.collectors",
        "Collection": "heedful.rollout.refill",
        "Collector": "heedful.rollout.collectors",
        "Context": "heedful.rollout.context",
        "LockStep": "heedful.rollout.collectors",
        "Player": "heedful.rollout.player",
        "Request": "heedful.rollout.collectors",
        "collect_until_enough": "heedful.rollout.refill",
        "isolated": "heedful.rollout.workers",
        "shape_overlong": "heedful.rollout.overlong",
    },
)
