"""Episodes that a script plays."""

from __future__ import annotations

from collections.abc import Callable

from heedful.envs.common.contract import turns_of
from heedful.protocols import Environment
from heedful.types import Step, Task


def play(env: Environment, task: Task, member: int, reply: Callable[[str, int], str]) -> list[Step]:
    """The environment's answers, to the end of the episode or to its last turn.

    `reply`: of the text of an observation and the number of its turn, from 0.
    """
    episode = env.episode()
    observation = episode.start(task, member)
    steps: list[Step] = []
    while not steps or (steps[-1].ending is None and len(steps) < turns_of(env)):
        steps.append(episode.step(reply(observation.text, len(steps))))
        observation = steps[-1].observation
    return steps
