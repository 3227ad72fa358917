"""The advantages of a batch as a sum: one part for each component of the reward, in two kinds of groups. Torch-free.

Groups whose members all have the same outcome are told apart from the others: a component that pays there pays for
something else than the task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from heedful.algorithms.advantages import GroupRelative, LeaveOneOut
from heedful.algorithms.gae import Gae
from heedful.algorithms.returns import TurnReturns
from heedful.diagnostics.statistics.group_statistics import is_constant, sample_variance
from heedful.protocols import CreditsMembers, CreditsTokens, CreditsTurns, Estimator
from heedful.training.samples import Row, advantages_of_turns, credit
from heedful.types import Group, TrainingSample, Trajectory

Advantages = list[tuple[float, ...]]
"""For each sample one number per token, 0 where nothing was sampled."""

VARIED, CONSTANT = "_varied", "_constant"
"""After a component's name: in groups whose outcome varies, and in groups of one outcome."""
WHOLE = "reward"
"""The only component under an estimator that is not a sum over components."""
CRITIC = "critic"
"""What the critic's values, and the mean that whitening takes away, do to the advantages."""


def split_advantages(
    samples: Sequence[TrainingSample], rows: Sequence[Row], groups: Sequence[Group], estimator: Estimator
) -> dict[str, Advantages]:
    """Part -> the advantages of all samples in it. The parts add up to the advantages of the samples.

    `rows` are those that the samples were made of. Deviations by which advantages are divided are those of the whole
    reward, and are held: so the parts of a sum are the sum of the parts. Parts that are zero everywhere are left out.
    """
    of_component = _by_component(samples, rows, groups, estimator)
    known = {sample.group for sample in samples}
    constant = {index for index in known if _constant_outcome(groups[index])}
    parts: dict[str, Advantages] = {}
    for name, found in of_component.items():
        if name == CRITIC:
            parts[name] = found
            continue
        for kind, wanted in ((VARIED, False), (CONSTANT, True)):
            parts[name + kind] = [
                one if (sample.group in constant) is wanted else (0.0,) * len(one)
                for one, sample in zip(found, samples, strict=True)
            ]
    return {name: found for name, found in parts.items() if any(any(one) for one in found)}


def component_names(groups: Sequence[Group]) -> list[str]:
    """The components of the reward, by name."""
    return sorted(
        {name for group in groups for one in group.trajectories for turn in one.turns for name in turn.rewards}
    )


def _constant_outcome(group: Group) -> bool:
    outcomes = [one.outcome for one in group.trajectories if one.outcome is not None]
    return not any(map(math.isnan, outcomes)) and is_constant(outcomes)


def _by_component(
    samples: Sequence[TrainingSample], rows: Sequence[Row], groups: Sequence[Group], estimator: Estimator
) -> dict[str, Advantages]:
    whole = [sample.advantages for sample in samples]
    names = component_names(groups)
    if isinstance(estimator, Gae):
        plain = replace(estimator, whiten=False)
        values = [sample.values or (0.0,) * len(sample.ids) for sample in samples]
        divisor = _deviation(credit(rows, groups, plain, values)) if estimator.whiten else 1.0
        parts = {}
        for name in names:
            alone = credit(rows, _with_only(name, groups), plain, [(0.0,) * len(row.ids) for row in rows])
            parts[name] = [tuple(each / divisor for each in one.advantages) for one in alone]
        paid = [tuple(map(math.fsum, zip(*of_row, strict=True))) for of_row in zip(*parts.values(), strict=True)]
        parts[CRITIC] = [
            tuple(each - part for each, part in zip(one, of_row, strict=True))
            for one, of_row in zip(whole, paid, strict=True)
        ]
        return parts
    undivided = _undivided(estimator)
    if undivided is None or isinstance(estimator, CreditsTokens):
        return {WHOLE: whole}
    parts = {}
    for name in names:
        only = _with_only(name, groups)
        scaled = {
            index: _scaled(groups[index], only[index], estimator, undivided) for index in {row.group for row in rows}
        }
        parts[name] = [
            tuple(scaled[row.group][row.member][turn] if turn >= 0 else 0.0 for turn in row.turns) for row in rows
        ]
    return parts


def _undivided(estimator: Estimator) -> CreditsMembers | CreditsTurns | None:
    """The same estimator without a division: linear in the rewards. `None` for an estimator that is not known here."""
    if isinstance(estimator, GroupRelative | TurnReturns):
        return replace(estimator, standardize=False)
    return estimator if isinstance(estimator, LeaveOneOut) else None


def _scaled(
    group: Group, only: Group, estimator: CreditsMembers | CreditsTurns, plain: CreditsMembers | CreditsTurns
) -> dict[int, list[float]]:
    """Member -> the advantage of each turn from one component, under the divisors of the whole reward."""
    whole_GK, plain_GK = (advantages_of_turns(group.trajectories, one) for one in (estimator, plain))
    part_GK = advantages_of_turns(only.trajectories, plain)
    by_turn = isinstance(plain, CreditsTurns)
    factors: dict[int, float] = {}
    largest: dict[int, float] = {}
    for whole_K, plain_K in zip(whole_GK, plain_GK, strict=True):
        for turn, (scaled, own) in enumerate(zip(whole_K, plain_K, strict=True)):
            key = turn if by_turn else 0
            if abs(own) > largest.get(key, 0.0):
                largest[key], factors[key] = abs(own), scaled / own
    return {
        trajectory.member: [one * factors.get(turn if by_turn else 0, 0.0) for turn, one in enumerate(part_K)]
        for trajectory, part_K in zip(group.trajectories, part_GK, strict=True)
    }


def _with_only(name: str, groups: Sequence[Group]) -> list[Group]:
    """The groups as if no other component had been paid."""

    def paid(trajectory: Trajectory) -> Trajectory:
        turns = []
        for turn in trajectory.turns:
            value = turn.rewards.get(name, 0.0)
            turns.append(replace(turn, rewards={name: 0.0 if math.isnan(value) else value}))
        return replace(trajectory, turns=tuple(turns))

    return [replace(group, trajectories=tuple(map(paid, group.trajectories))) for group in groups]


def _deviation(samples: Sequence[TrainingSample]) -> float:
    """The sample deviation of the advantages of all sampled tokens. Infinite where they are constant: none is left."""
    flat = [
        one for sample in samples for one, trained in zip(sample.advantages, sample.trained, strict=True) if trained
    ]
    return math.inf if is_constant(flat) else math.sqrt(sample_variance(flat))
