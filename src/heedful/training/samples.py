"""Groups and verdicts become training samples; a filter's strength becomes a factor on the loss.

Promise: the ids trained on are the ids that the sampler returned; nothing is rendered or tokenised again. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from heedful.protocols import AdvantageEstimator
from heedful.types import Group, TrainingSample, Trajectory, Verdict

LossScale = Literal["kept", "all", "sqrt", "rho"]


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


def loss_scale_factor(kind: LossScale, kept: int, total: int, p: float | None = None) -> float:
    """What the whole loss, its regularisers included, is multiplied by when `kept` of `total` groups are kept.

    `kept`: 1, so that means run over what is kept. `all`: kept / total, so that they run over everything collected
    (exact where groups weigh alike: averages over sequences and over a fixed budget). `sqrt`: the square root of that.
    `rho`: p, the share that the filter asks for. AdamW divides a constant factor out again: only changes of the factor
    between steps, weight decay and gradient clipping can tell the difference.

    Raises ValueError for impossible counts, and for `rho` without a filter that has a `p`.
    """
    if not 0 <= kept <= total or total < 1:
        raise ValueError(f"Expected 0 <= kept groups <= groups and at least 1 group, found {kept} kept of {total}.")
    if kind == "kept":
        return 1.0
    if kind == "all":
        return kept / total
    if kind == "sqrt":
        return math.sqrt(kept / total)
    if kind != "rho":
        raise ValueError(f"Expected a loss scale among {', '.join(get_args(LossScale))}, found {kind!r}.")
    if p is None:
        raise ValueError(
            "The loss scale 'rho' multiplies the loss by the filter's p, but the chosen filter has none; "
            "choose the filter top_p, or the loss scale kept, all or sqrt."
        )
    return p
