"""Lock-step rollouts: one batch of conversations, all of them one turn further at a time.

Promise: groups come back in the order of the tasks, members in order of their number, every episode ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heedful.protocols import Environment, Policy
from heedful.rollout.context import FULL_HISTORY, Context
from heedful.rollout.episode import Episode
from heedful.types import Group, Task


def collect(
    policy: Policy,
    make_environment: Callable[[], Environment],
    tasks: Sequence[Task],
    group_size: int,
    max_turns: int,
    context: Context = FULL_HISTORY,
) -> list[Group]:
    """Play `group_size` episodes of every task with one policy, which reads as much of an episode as `context` says.

    Members of a group face the same start state and independent noise. An episode whose environment raises
    ends as `Ending.ERROR` with no outcome; the others go on.
    """
    episodes_PG = [
        [Episode(make_environment(), task, member, max_turns, context) for member in range(group_size)]
        for task in tasks
    ]
    live = [episode for episodes_G in episodes_PG for episode in episodes_G if episode.ending is None]
    while live:
        replies = policy.respond([episode.conversation for episode in live])
        for episode, reply in zip(live, replies, strict=True):
            episode.advance(reply)
        live = [episode for episode in live if episode.ending is None]
    return [
        Group(task, tuple(episode.trajectory(policy.temperature, policy.version) for episode in episodes_G))
        for task, episodes_G in zip(tasks, episodes_PG, strict=True)
    ]
