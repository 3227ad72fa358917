"""Groups and verdicts become training samples.

Promise: the ids trained on are the ids that the sampler returned; nothing is rendered or tokenised again. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from heedful.types import Group, TrainingSample, Trajectory, Turn, Verdict

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Row:
    """Consecutive turns of one trajectory as one row of ids, before credit is given: each context extends the last.

    Example: prompt `a b`, reply `C D`, glue `e`, reply `F` gives ids `a b C D e F` and turns `- - 0 0 - 1` (-1 for -).
    """

    ids: tuple[int, ...]
    turns: tuple[int, ...]
    """Per token: the number of the turn that sampled it, -1 where nobody did."""
    logprobs: tuple[float, ...]
    """Of the sampler, 0 where not sampled."""
    group: int
    """Index of its group in the step."""
    member: int
    weight: float

    @property
    def trained(self) -> tuple[bool, ...]:
        return tuple(turn >= 0 for turn in self.turns)


def make_samples(groups: Sequence[Group], verdicts: Sequence[Verdict], estimator: Any) -> list[TrainingSample]:
    """`merge_rows`, then `credit`, for an estimator that needs no critic."""
    return credit(merge_rows(groups, verdicts), groups, estimator)


def merge_rows(groups: Sequence[Group], verdicts: Sequence[Verdict]) -> list[Row]:
    """The rows of every trajectory of every kept group, in order: one, or more where its contexts do not extend.

    Left out: dropped groups, trajectories that were never scored (`reward` is `None` or NaN), and turns without a
    sampled token. Raises ValueError where a reply lacks the log-probabilities of its tokens.
    """
    if len(groups) != len(verdicts):
        raise ValueError(f"Expected one verdict per group, found {len(verdicts)} verdicts for {len(groups)} groups.")
    rows = []
    for index, (group, verdict) in enumerate(zip(groups, verdicts, strict=True)):
        if not verdict.kept:
            continue
        for trajectory in group.trajectories:
            if _scored(trajectory):
                rows += _merge(trajectory, index, verdict.weight)
    return rows


def credit(
    rows: Sequence[Row],
    groups: Sequence[Group],
    estimator: Any,
    values: Sequence[Sequence[float]] | None = None,
) -> list[TrainingSample]:
    """One sample per row, in order; advantages come from the rewards of the whole group.

    `estimator.reads` says what it is given: `rewards`, each member's total, for one advantage per member that stands on
    each of its sampled tokens; `turns`, each member's reward per turn, for one advantage per turn; `values`, one
    trajectory's reward per turn and the critic's `values` (one per token of each row) of its sampled tokens, for one
    advantage and one return per sampled token.

    Raises ValueError where an estimator that reads values gets none.
    """
    if estimator.reads == "values":
        return _credit_values(rows, groups, estimator, values)
    samples: list[TrainingSample] = []
    for index, rows_of_group in groupby(rows, key=lambda row: row.group):
        trajectories = groups[index].trajectories
        of_member = {
            trajectory.member: advantages_K
            for trajectory, advantages_K in zip(trajectories, advantages_of_turns(trajectories, estimator), strict=True)
        }
        for row in rows_of_group:
            advantages_K = of_member[row.member]
            advantages = tuple(advantages_K[turn] if turn >= 0 else 0.0 for turn in row.turns)
            samples.append(
                TrainingSample(row.ids, row.trained, row.logprobs, advantages, row.group, row.member, row.weight)
            )
    return samples


def of_trajectories(rows: Sequence[Row]) -> list[list[int]]:
    """The places of the rows of each trajectory, in order."""
    named = groupby(range(len(rows)), key=lambda place: (rows[place].group, rows[place].member))
    return [list(places) for _, places in named]


def turn_rewards(row: Row, groups: Sequence[Group]) -> list[float]:
    """The rewards, per turn, of the trajectory that a row belongs to."""
    (trajectory,) = (one for one in groups[row.group].trajectories if one.member == row.member)
    return [turn.reward for turn in trajectory.turns]


def at_sampled(values: Sequence[Sequence[Value]], rows: Sequence[Row], places: Sequence[int]) -> list[Value]:
    """What stands at the sampled tokens of the rows at `places`, one after the other."""
    pairs = [pair for place in places for pair in zip(values[place], rows[place].turns, strict=True)]
    return [value for value, turn in pairs if turn >= 0]


def _credit_values(
    rows: Sequence[Row], groups: Sequence[Group], estimator: Any, values: Sequence[Sequence[float]] | None
) -> list[TrainingSample]:
    """`credit` from values: over the sampled tokens of a trajectory's rows in order, then over the whole batch."""
    if values is None:
        raise ValueError(
            f"{type(estimator).__name__} reads a critic's values, but none were given; pass one value per token of "
            "each row, or choose an estimator that needs no critic."
        )
    trajectories = of_trajectories(rows)
    turns = [row.turns for row in rows]
    credits_B = [
        estimator(
            turn_rewards(rows[places[0]], groups), at_sampled(values, rows, places), at_sampled(turns, rows, places)
        )
        for places in trajectories
    ]
    samples: list[TrainingSample] = []
    whitened_BT = estimator.whitened([one.advantages_T for one in credits_B])
    for places, one, advantages_T in zip(trajectories, credits_B, whitened_BT, strict=True):
        advantages, returns = iter(advantages_T), iter(one.returns_T)
        for place in places:
            row = rows[place]
            samples.append(
                TrainingSample(
                    ids=row.ids,
                    trained=row.trained,
                    logprobs=row.logprobs,
                    advantages=tuple(next(advantages) if turn >= 0 else 0.0 for turn in row.turns),
                    group=row.group,
                    member=row.member,
                    weight=row.weight,
                    values=tuple(values[place]),
                    returns=tuple(next(returns) if turn >= 0 else 0.0 for turn in row.turns),
                )
            )
    return samples


def advantages_of_turns(trajectories: Sequence[Trajectory], estimator: Any) -> list[list[float]]:
    """The advantage of every turn of every member of a group; of unscored members zeros."""
    if estimator.reads == "rewards":
        advantages_G = estimator([trajectory.reward for trajectory in trajectories])
        return [
            [advantage] * len(trajectory.turns)
            for advantage, trajectory in zip(advantages_G, trajectories, strict=True)
        ]
    rewards_GK = [
        [turn.reward for turn in trajectory.turns] if _scored(trajectory) else None for trajectory in trajectories
    ]
    advantages_GK: list[list[float]] = estimator(rewards_GK)
    return advantages_GK


def _scored(trajectory: Trajectory) -> bool:
    reward = trajectory.reward
    return reward is not None and not math.isnan(reward)


def _merge(trajectory: Trajectory, group: int, weight: float) -> list[Row]:
    """The rows of one trajectory: a new one wherever a prompt does not go on from the turn before."""
    runs: list[list[tuple[int, Turn]]] = []
    for number, turn in enumerate(trajectory.turns):
        if not runs or turn.reply.prompt.restarts:
            runs.append([])
        runs[-1].append((number, turn))
    rows = [_row(run, trajectory, group, weight) for run in runs]
    return [row for row in rows if any(turn >= 0 for turn in row.turns)]


def _row(run: Sequence[tuple[int, Turn]], trajectory: Trajectory, group: int, weight: float) -> Row:
    ids: list[int] = []
    turns: list[int] = []
    logprobs: list[float] = []
    for number, turn in run:
        reply = turn.reply
        if len(reply.ids) != len(reply.logprobs):
            raise ValueError(
                f"Expected one log-probability per sampled token, found {len(reply.logprobs)} for {len(reply.ids)} "
                f"in turn {number} of member {trajectory.member} of task {trajectory.task.id}; the policy that sampled "
                "must return them to be trained on."
            )
        ids += reply.prompt.ids + reply.ids
        turns += [-1] * len(reply.prompt.ids) + [number] * len(reply.ids)
        logprobs += [0.0] * len(reply.prompt.ids) + list(reply.logprobs)
    return Row(tuple(ids), tuple(turns), tuple(logprobs), group, trajectory.member, weight)
