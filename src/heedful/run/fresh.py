"""Fresh groups of training tasks, beside the tasks of a run: for measurements that must not touch its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from heedful.envs.common.contract import turns_of
from heedful.envs.common.tasks import TaskStream
from heedful.rollout import Request, shape_overlong
from heedful.run.config import TrainConfig
from heedful.seeds import derive
from heedful.types import Group, Task

if TYPE_CHECKING:
    from heedful.policies import OpenPolicySource
    from heedful.protocols import Environment
    from heedful.run.parts import Parts

MOST_AT_ONCE = 1024
"""Episodes that are played at once."""


def fresh_tasks(config: TrainConfig, env: Environment, split: str, count: int, *names: str | int) -> list[Task]:
    """Tasks of a split, of a stream of its own by `names`. For training: of the run's pool if it has one."""
    pool = config.pool if split == "train" else None
    own = ("tasks",) if pool is not None else (names[0], "tasks", *names[1:])
    return TaskStream(env, split, derive(config.seed, *own), pool).next(count)


def play_fresh(
    config: TrainConfig,
    parts: Parts,
    env: Environment,
    source: OpenPolicySource,
    tasks: Sequence[Task],
    members: int,
    *names: str | int,
    at_once: int = MOST_AT_ONCE,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> list[Group]:
    """`members` episodes of each task with the source's policy, with rewards shaped as in training.

    `names` decide the sampling noise. `tell`: told of the episodes done, of how many.
    """
    algorithm, size = config.algorithm, max(1, at_once // members)
    groups: list[Group] = []
    for start in range(0, len(tasks), size):
        policy = source.policy(parts.renderer, config.asked(config.sampling), derive(config.seed, *names, start))
        request = Request(env.episode, tasks[start : start + size], members, turns_of(env), config.context)
        groups += config.collect(policy, request)
        tell(len(groups) * members, len(tasks) * members)
    if not algorithm.overlong_buffer:
        return groups
    limit = config.sampling.tokens_per_turn
    return shape_overlong(groups, limit, algorithm.overlong_buffer, algorithm.overlong_penalty)
