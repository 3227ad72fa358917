"""Chain with rewards that say nothing of the task: a coin, and a price of length."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, cast

from heedful.boundary import NotNegative
from heedful.envs.common.base import Played
from heedful.envs.toys.chain import Chain, ChainEpisode
from heedful.types import Task

COMPONENTS = ("coin", "fluency", "length")
"""The components of the reward that say nothing of the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NullChain(Chain):
    """Chain with two more components of the reward, whatever the reply says of the task."""

    coin: NotNegative = 0.0
    """Reward component `coin`, paid to about every other episode of a task, by member."""
    length: NotNegative = 0.0
    """Reward component `length`, the price of each letter of a thought."""

    def episode(self) -> ChainEpisode:
        return NullEpisode(cast(Any, self))


class NullEpisode(ChainEpisode):
    """An episode of `NullChain`."""

    __slots__ = ("_paid",)

    def begin(self, task: Task, member: int) -> str:
        self._paid = random.Random(f"coin {task.seed} {member}").random() < 0.5
        return ChainEpisode.begin(self, task, member)

    def play(self, response: str) -> Played:
        played, env = ChainEpisode.play(self, response), cast(NullChain, self.env)
        rewards = dict(played.rewards)
        if env.coin:
            rewards["coin"] = env.coin * self._paid
        if env.length:
            rewards["length"] = -env.length * len(response.partition("</think>")[0])
        return replace(played, rewards=rewards)
