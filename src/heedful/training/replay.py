"""Replay of a rare success: one more member of a group whose task fails, sampled by an older policy. Torch-free.

A success z of a policy that succeeded with chance p_old has the probability pi_old(z) / p_old among its successes. So
the expectation of pi(z) / pi_old(z) x p_old x grad log pi(z) is the gradient of the policy's own chance of success.

Source: truncated importance sampling (Ionides 2008). AR3PO (arXiv:2509.25808) stores right answers for tasks on which
none comes. Deviations: the ratio is that of the whole episode, while `training.correction` takes it by token or by
turn, and for all samples. The chance p_old is a belief's mean, so it is not exact.

A success whose ratio is near 0 is a member of its group all the same: small ratios are part of that expectation, and
a mean that counted large ones alone would exceed the gradient. KL penalty and entropy bonus leave all replays out: they
are means over the policy's own episodes, and no ratio weighs them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from heedful.diagnostics.statistics.group_statistics import scored
from heedful.training.samples import Row, at_sampled, merge_rows, sample_of
from heedful.types import Group, Metric, TrainingSample, Verdict

CAP = 2.0
"""The largest ratio. A success that has become likelier than that needs no replay."""

NONE = "no success was replayed"

LogProbs = Callable[[Sequence[TrainingSample]], Sequence[Sequence[float]]]
"""For each sample the log-probabilities of its trained tokens under the policy that is updated."""


@dataclass(frozen=True, slots=True)
class Success:
    """A successful episode: token ids and log-probabilities, and nothing else of it."""

    version: int
    """The step that sampled it."""
    reward: float
    chance: float
    """The belief's mean of the task's chance of success, after the visit."""
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, group: Group, chance: float) -> Success | None:
        """The first success of a group. `None` without one."""
        for trajectory in group.trajectories:
            if trajectory.success:
                alone = replace(group, trajectories=(trajectory,))
                rows = merge_rows([alone], [Verdict(1.0, "kept", None)])
                return cls(trajectory.policy_version, trajectory.reward or 0.0, chance, tuple(rows))
        return None


def replayed(
    replays: Mapping[int, Success], groups: Sequence[Group], logprobs: LogProbs
) -> tuple[list[TrainingSample], list[Metric]]:
    """The samples of the successes, and `treat/replay*`. `replays`: place of a group -> the success of its task.

    The advantage is min(2, pi(z) / pi_old(z)) x p_old x (the success's reward - the mean reward of the group's fresh
    members). The log-probabilities of the samples are those of the policy now, so that its ratios begin at 1.
    """
    rows = {
        place: [replace(row, group=place, member=len(groups[place].trajectories)) for row in success.rows]
        for place, success in replays.items()
    }
    blank = [sample_of(row, (0.0,) * len(row.ids)) for of_group in rows.values() for row in of_group]
    now = iter(logprobs(blank) if blank else ())
    samples, ratios = list[TrainingSample](), list[float]()
    for place, success in replays.items():
        news = [next(now) for _ in rows[place]]
        olds = [value for row in rows[place] for value, turn in zip(row.logprobs, row.turns, strict=True) if turn >= 0]
        log_ratio = math.fsum(value for new in news for value in new) - math.fsum(olds)
        ratios.append(math.exp(min(log_ratio, math.log(CAP))))
        fresh = fmean(scored([trajectory.reward for trajectory in groups[place].trajectories]))
        advantage = ratios[-1] * success.chance * (success.reward - fresh)
        for row, new in zip(rows[place], news, strict=True):
            sample = sample_of(row, tuple(advantage if turn >= 0 else 0.0 for turn in row.turns))
            samples.append(replace(sample, logprobs=at_sampled(row, iter(new)), regularised=False))
    ages = [groups[place].trajectories[0].policy_version - success.version for place, success in replays.items()]
    of_all = (("replay_age", ages), ("replay_ratio", ratios))
    return samples, [
        Metric("treat/replayed", float(len(replays)), len(groups)),
        *(
            Metric(f"treat/{name}", fmean(values) if values else None, len(values), why="" if values else NONE)
            for name, values in of_all
        ),
    ]
