"""Groups and verdicts become training samples.

Promise: the ids trained on are the ids that the sampler returned; nothing is rendered or tokenised again. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from heedful.protocols import AdvantageEstimator
from heedful.types import Group, TrainingSample, Trajectory, Verdict


def make_samples(
    groups: Sequence[Group], verdicts: Sequence[Verdict], advantage_estimator: AdvantageEstimator
) -> list[TrainingSample]:
    """One sample per trajectory of every kept group, turns merged in order (`TrainingSample` holds a worked example).

    The advantage, from the rewards of the whole group, stands on every sampled token. Left out: dropped groups,
    trajectories that were never scored (`reward` is `None`; they do not enter the group's statistics either), and
    trajectories without a sampled token. `group` is the index in `groups`.
    """
    if len(groups) != len(verdicts):
        raise ValueError(f"Expected one verdict per group, found {len(verdicts)} verdicts for {len(groups)} groups.")
    samples = []
    for index, (group, verdict) in enumerate(zip(groups, verdicts, strict=True)):
        if not verdict.kept:
            continue
        rewards_G = [trajectory.reward for trajectory in group.trajectories]
        advantages_G = advantage_estimator(rewards_G)
        for trajectory, reward, advantage in zip(group.trajectories, rewards_G, advantages_G, strict=True):
            scored = reward is not None and not math.isnan(reward)
            if scored and any(turn.reply.ids for turn in trajectory.turns):
                samples.append(_merge(trajectory, advantage, index, verdict.weight))
    return samples


def _merge(trajectory: Trajectory, advantage: float, group: int, weight: float) -> TrainingSample:
    ids: list[int] = []
    trained: list[bool] = []
    logprobs: list[float] = []
    for number, turn in enumerate(trajectory.turns):
        reply = turn.reply
        if len(reply.ids) != len(reply.logprobs):
            raise ValueError(
                f"Expected one log-probability per sampled token, found {len(reply.logprobs)} for {len(reply.ids)} "
                f"in turn {number} of member {trajectory.member} of task {trajectory.task.id}; the policy that sampled "
                "must return them to be trained on."
            )
        ids += reply.prompt.ids + reply.ids
        trained += [False] * len(reply.prompt.ids) + [True] * len(reply.ids)
        logprobs += [0.0] * len(reply.prompt.ids) + list(reply.logprobs)
    return TrainingSample(
        ids=tuple(ids),
        trained=tuple(trained),
        logprobs=tuple(logprobs),
        advantages=tuple(advantage if sampled else 0.0 for sampled in trained),
        group=group,
        member=trajectory.member,
        weight=weight,
    )
