"""Training samples from groups and verdicts.

The ids trained on are the ids that the sampler returned. Nothing is rendered or tokenised again. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from heedful.diagnostics.statistics.group_statistics import is_constant
from heedful.protocols import CreditsMembers, CreditsTokens, CreditsTurns, Estimator
from heedful.types import Group, Metric, SampledTrajectory, TrainingSample, Trajectory, Turn, Verdict


@dataclass(frozen=True, slots=True)
class Row:
    """Consecutive turns of one trajectory as one row of ids, before credit is given: each context extends the last.

    Example: prompt `a b`, reply `C D`, glue `e`, reply `F` gives ids `a b C D e F` and turns `- - 0 0 - 1` (-1 for -).
    """

    ids: tuple[int, ...]
    turns: tuple[int, ...]
    """Per token: the number of the turn that sampled it, -1 where not sampled."""
    logprobs: tuple[float, ...]
    """The sampler's log-probabilities, 0 where not sampled."""
    group: int
    """Index of its group in the step."""
    member: int
    weight: float

    @property
    def trained(self) -> tuple[bool, ...]:
        return tuple(turn >= 0 for turn in self.turns)


def make_samples(groups: Sequence[Group], verdicts: Sequence[Verdict], estimator: Estimator) -> list[TrainingSample]:
    """`merge_rows`, then `credit`, for an estimator that needs no critic."""
    return credit(merge_rows(groups, verdicts), groups, estimator)


def merge_rows(groups: Sequence[Group], verdicts: Sequence[Verdict]) -> list[Row]:
    """The rows of every trajectory of every kept group, in order: one, or more where its contexts do not extend.

    Left out: dropped groups, trajectories that were never scored (`reward` is `None` or NaN), and turns without a
    sampled token.
    """
    return [
        row
        for index, (group, verdict) in enumerate(zip(groups, verdicts, strict=True))
        if verdict.kept
        for trajectory in group.trajectories
        if _scored(trajectory)
        for row in _merge(trajectory, index, verdict.weight)
    ]


def credit(
    rows: Sequence[Row],
    groups: Sequence[Group],
    estimator: Estimator,
    values: Sequence[Sequence[float]] | None = None,
) -> list[TrainingSample]:
    """One sample per row, in order. Advantages come from the rewards of the whole group.

    `values`: a critic's, one per token of each row.
    """
    if not rows:
        return []
    if isinstance(estimator, CreditsTokens):
        return _credit_tokens(rows, groups, estimator, values)
    return _credit_turns(rows, groups, estimator)


def _credit_turns(
    rows: Sequence[Row], groups: Sequence[Group], estimator: CreditsMembers | CreditsTurns
) -> list[TrainingSample]:
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
            samples.append(sample_of(row, advantages))
    return samples


def advantage_without_outcome(samples: Sequence[TrainingSample], groups: Sequence[Group]) -> Metric:
    """`policy/advantage_without_outcome`: what the parts of the reward beside the outcome have to say in an update.

    The sum of weight x |advantage| over the trained tokens of groups whose members all have the same outcome, as a part
    of that sum over all groups. Such a group differs in other parts of the reward alone, such as a cost per step.
    """
    name = "policy/advantage_without_outcome"
    mass: dict[int, float] = {}
    for sample in samples:
        mass[sample.group] = mass.get(sample.group, 0.0) + sample.weight * math.fsum(map(abs, sample.advantages))
    outcomes = {index: [one.outcome for one in groups[index].trajectories if _scored(one)] for index in mass}
    if not mass:
        return Metric(name, None, why="no sample to train on: the filter kept nothing, or nothing was scored")
    if any(outcome is None or math.isnan(outcome) for of_group in outcomes.values() for outcome in of_group):
        return Metric(name, None, why="the outcome of an episode is unknown")
    total = math.fsum(mass.values())
    if not total:
        return Metric(name, None, why="every advantage is 0")
    alike = [index for index, of_group in outcomes.items() if is_constant([one for one in of_group if one is not None])]
    return Metric(name, math.fsum(mass[index] for index in alike) / total, n=len(mass))


def of_trajectories(rows: Sequence[Row]) -> list[list[int]]:
    """The places of the rows of each trajectory, in order."""
    named = groupby(range(len(rows)), key=lambda place: (rows[place].group, rows[place].member))
    return [list(places) for _, places in named]


def sampled_trajectories(
    rows: Sequence[Row], groups: Sequence[Group], values: Sequence[Sequence[float]] | None = None
) -> list[SampledTrajectory]:
    """The trajectories that the rows belong to, in order. `values`: a critic's, one per token of each row."""
    found = []
    for places in of_trajectories(rows):
        first = rows[places[0]]
        group = groups[first.group]
        (trajectory,) = (one for one in group.trajectories if one.member == first.member)
        values_T = () if values is None else tuple(value for at in places for value in _sampled(rows[at], values[at]))
        found.append(SampledTrajectory(group, trajectory, values_T))
    return found


def advantages_of_turns(
    trajectories: Sequence[Trajectory], estimator: CreditsMembers | CreditsTurns
) -> list[list[float]]:
    """The advantage of every turn of every member of a group, or of some of its members."""
    if isinstance(estimator, CreditsTurns):
        return estimator.turn_advantages(trajectories)
    return [
        [advantage] * len(trajectory.turns)
        for advantage, trajectory in zip(estimator.member_advantages(trajectories), trajectories, strict=True)
    ]


def _credit_tokens(
    rows: Sequence[Row], groups: Sequence[Group], estimator: CreditsTokens, values: Sequence[Sequence[float]] | None
) -> list[TrainingSample]:
    samples: list[TrainingSample] = []
    credits = estimator.token_credits(sampled_trajectories(rows, groups, values))
    for places, one in zip(of_trajectories(rows), credits, strict=True):
        advantages, returns = iter(one.advantages_T), iter(one.returns_T)
        for place in places:
            row = rows[place]
            samples.append(
                sample_of(
                    row,
                    advantages=at_sampled(row, advantages),
                    values=() if values is None else tuple(values[place]),
                    returns=at_sampled(row, returns) if one.returns_T else (),
                )
            )
    return samples


def sample_of(
    row: Row, advantages: tuple[float, ...], values: tuple[float, ...] = (), returns: tuple[float, ...] = ()
) -> TrainingSample:
    return TrainingSample(
        row.ids, row.trained, row.logprobs, advantages, row.group, row.member, row.weight, values, returns
    )


def _sampled(row: Row, values_T: Sequence[float]) -> list[float]:
    """The values at the sampled tokens of a row."""
    return [value for value, turn in zip(values_T, row.turns, strict=True) if turn >= 0]


def at_sampled(row: Row, numbers: Iterator[float]) -> tuple[float, ...]:
    """The next numbers, one at each sampled token of a row, 0 elsewhere."""
    return tuple(next(numbers) if turn >= 0 else 0.0 for turn in row.turns)


def _scored(trajectory: Trajectory) -> bool:
    reward = trajectory.reward
    return reward is not None and not math.isnan(reward)


def _merge(trajectory: Trajectory, group: int, weight: float) -> list[Row]:
    """The rows of one trajectory: a new one wherever a prompt does not continue the turn before."""
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
        ids += reply.prompt.ids + reply.ids
        turns += [-1] * len(reply.prompt.ids) + [number] * len(reply.ids)
        logprobs += [0.0] * len(reply.prompt.ids) + list(reply.logprobs)
    return Row(tuple(ids), tuple(turns), tuple(logprobs), group, trajectory.member, weight)
