"""Rollouts: a policy plays the episodes of an environment. Torch-free.

groups = LockStep()(policy, Request(env.episode, tasks, group_size=8, max_turns=env.turns))

Importing this package loads none of its modules. So a worker process of an environment, which needs one of them, starts
without numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.rollout.choosers import CHOOSERS, Chooser
    from heedful.rollout.collectors import COLLECTORS, Asynchronous, Collector, LockStep, Request
    from heedful.rollout.context import FULL_HISTORY, Context
    from heedful.rollout.overlong import shape_overlong, without_rewards
    from heedful.rollout.plans import PLANS
    from heedful.rollout.player import Player, first_observation, made
    from heedful.rollout.rounds import Ask, Collection, Plan, Standing, collect_in_rounds
    from heedful.rollout.workers import isolated

__all__ = [
    "CHOOSERS",
    "COLLECTORS",
    "FULL_HISTORY",
    "PLANS",
    "Ask",
    "Asynchronous",
    "Chooser",
    "Collection",
    "Collector",
    "Context",
    "LockStep",
    "Plan",
    "Player",
    "Request",
    "Standing",
    "collect_in_rounds",
    "first_observation",
    "isolated",
    "made",
    "shape_overlong",
    "without_rewards",
]

__getattr__ = lazily(
    __name__,
    {
        "first_observation": "heedful.rollout.player",
        "made": "heedful.rollout.player",
        "CHOOSERS": "heedful.rollout.choosers",
        "COLLECTORS": "heedful.rollout.collectors",
        "FULL_HISTORY": "heedful.rollout.context",
        "Asynchronous": "heedful.rollout.collectors",
        "PLANS": "heedful.rollout.plans",
        "Ask": "heedful.rollout.rounds",
        "Chooser": "heedful.rollout.choosers",
        "Collection": "heedful.rollout.rounds",
        "Collector": "heedful.rollout.collectors",
        "Context": "heedful.rollout.context",
        "LockStep": "heedful.rollout.collectors",
        "Player": "heedful.rollout.player",
        "Request": "heedful.rollout.collectors",
        "Plan": "heedful.rollout.rounds",
        "Standing": "heedful.rollout.rounds",
        "collect_in_rounds": "heedful.rollout.rounds",
        "isolated": "heedful.rollout.workers",
        "shape_overlong": "heedful.rollout.overlong",
        "without_rewards": "heedful.rollout.overlong",
    },
)
