"""The noise of the gradient: from groups of trajectories to the inner products that `diagnostics.gradient` reads.

Measuring changes no byte of the training that follows. The mean over groups of the parts, each times its coefficient,
is the gradient that the learner would descend if it kept every group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from heedful.algorithms.advantages import GroupRelative, LeaveOneOut
from heedful.algorithms.table import Algorithm
from heedful.diagnostics.gradient.metrics import GRAMS, PARTS
from heedful.diagnostics.gradient.scope import GradientNoise, Side
from heedful.diagnostics.statistics.group_statistics import sample_variance
from heedful.models.forward.token_logits import TokenLogits
from heedful.protocols import CreditsTokens, CreditsTurns, Estimator
from heedful.training.critic import Critic
from heedful.training.gradients.trajectory_gradients import (
    Projection,
    TrajectoryGradients,
    Unit,
    dimensions_within,
    inner_products,
)
from heedful.training.samples import Row, advantages_of_turns, credit, merge_rows
from heedful.types import Group, Trajectory, Verdict

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Floats = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]
"""Told after each group: trajectories done, of how many."""

_SIDES = 3
"""All members of each group, the even ones, the odd ones."""
_READINGS = ("variance", "deviation2", "score2")


@dataclass(frozen=True, slots=True)
class GradientMeasurement:
    """The measured noise, and how exactly it was measured."""

    noise: GradientNoise
    trajectories: int
    parameters: int
    sketched: int | None
    """Numbers that each gradient was projected to; `None` = kept whole."""


class GradientMeter:
    """Measures a policy's gradients on groups that the policy itself sampled."""

    def __init__(
        self,
        model: PreTrainedModel,
        reference: PreTrainedModel | TokenLogits,
        algorithm: Algorithm,
        *,
        temperature: float,
        token_budget: int,
        memory_mb: int,
        critic: Critic | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """`reference`: what the KL penalty pulls towards. `memory_mb` bounds what is kept of all gradients together;
        vectors that would take more are projected, as `seed` decides."""
        self.algorithm = algorithm
        self.critic = critic
        self.token_budget = token_budget
        self.memory_mb = memory_mb
        self.seed = seed
        self.device = device
        self._gradients = TrajectoryGradients(model, reference, algorithm, temperature=temperature, device=device)

    def measure(self, groups: Sequence[Group], progress: Progress = lambda done, total: None) -> GradientMeasurement:
        """All parts of the gradient of all groups, no filter applied. Rewards are those of the trajectories given.

        Raises ValueError where the budget of memory is too small even for projected vectors.
        """
        rows = merge_rows(groups, [Verdict(1.0, "kept", None)] * len(groups))
        scales = self._scales(rows)
        own: list[Sequence[float]] | None = None  # for each row its tokens' advantages, under credit for tokens
        if isinstance(self.algorithm.advantage, CreditsTokens):
            values = None if self.critic is None or not rows else self.critic.values(rows, alone=True)
            own = [sample.advantages for sample in credit(rows, groups, self.algorithm.advantage, values)]
        numbers = [number for number, _ in groupby(row.group for row in rows)]
        sizes = [parameter.numel() for parameter in self._gradients.parameters]
        families = _SIDES * len(set(_sources(self.algorithm.advantage).values()))  # of each side the parts that differ
        per_member = 3 + isinstance(self.algorithm.advantage, CreditsTokens)
        by_turn = isinstance(self.algorithm.advantage, CreditsTurns)
        units = [
            len(members) * (per_member + (max(len(one.turns) for one in members) if by_turn else 0))
            for members in (groups[number].trajectories for number in numbers)
        ]
        kept = families * len(numbers) + max(units, default=1)
        dimensions = dimensions_within(sum(sizes), kept, self.memory_mb)
        projection = Projection(sizes, dimensions, seed=self.seed, device=self.device)
        collection = _Collection(len(numbers), projection.length, self.algorithm.advantage)
        done = 0
        for place, number in enumerate(numbers):
            found: list[Unit] = []
            for member, of_member in groupby(
                (index for index, row in enumerate(rows) if row.group == number), key=lambda index: rows[index].member
            ):
                indices = list(of_member)
                advantages = None if own is None else [own[index] for index in indices]
                found += self._gradients.units(
                    [rows[index] for index in indices], scales[number, member], projection, advantages
                )
                done += 1
                progress(done, len(scales))
            collection.take(place, groups[number].trajectories, found)
        return GradientMeasurement(collection.noise(), len(scales), sum(sizes), dimensions)

    def _scales(self, rows: Sequence[Row]) -> dict[tuple[int, int], float]:
        """(group, member) -> what one of its tokens counts for in the mean over trajectories."""
        counts: dict[tuple[int, int], int] = {}
        for row in rows:
            counts[row.group, row.member] = counts.get((row.group, row.member), 0) + sum(row.trained)
        if not counts:
            return {}
        shares = self.algorithm.token_weights(list(counts.values()), [1.0] * len(counts), self.token_budget)
        return {name: share * len(counts) for name, share in zip(counts, shares, strict=True)}


def _sources(estimator: Estimator) -> dict[str, str]:
    """Part -> the part whose vectors it shares: the run's own estimate may be one of the other two."""
    sources = {part: part for part in PARTS}
    if isinstance(estimator, GroupRelative):
        sources["task"] = "task_divided" if estimator.standardize else "task_undivided"
    return sources


class _Members:
    """Some members of one group, and the units of the whole group with their inner products."""

    def __init__(
        self, members: Sequence[Trajectory], units: Sequence[Unit], gram_UU: Floats, estimator: Estimator
    ) -> None:
        self.members = members
        self.units = units
        self.gram_UU = gram_UU
        self.estimators: dict[str, Estimator] = {
            "task": estimator,
            "task_undivided": GroupRelative(standardize=False),
            "task_divided": GroupRelative(standardize=True),
            "unbiased": LeaveOneOut(),
        }

    def coefficients(self, part: str, members: Sequence[Trajectory]) -> Floats:
        """What each unit counts for in the sum over `members` of this part of the loss."""
        estimator = self.estimators.get(part)
        if estimator is None or isinstance(estimator, CreditsTokens):
            kind, sign = ("own", -1.0) if part == "task" else (part, 1.0)
            among = {trajectory.member for trajectory in members}
            return np.array([sign * (unit.kind == kind and unit.member in among) for unit in self.units])
        of_member = {
            trajectory.member: advantages_K
            for trajectory, advantages_K in zip(members, advantages_of_turns(members, estimator), strict=True)
        }
        return np.array(
            [
                -_mean_credit(unit, of_member[unit.member])
                if unit.kind == "score" and unit.member in of_member
                else 0.0
                for unit in self.units
            ]
        )

    def product_of_halves(self, part: str) -> float:
        """The inner product of the mean gradients of two disjoint halves of the members, mean over splits; NaN where a
        half would have fewer than two.

        The splits are the rotations of the members' order: as many as keep every member equally often in each half.
        """
        count = len(self.members)
        if count < 4:
            return math.nan
        products = []
        for start in range(count if count % 2 else count // 2):
            turned = [*self.members[start:], *self.members[:start]]
            one, other = turned[: count // 2], turned[count // 2 :]
            product = self.coefficients(part, one) @ self.gram_UU @ self.coefficients(part, other)
            products.append(float(product) / (len(one) * len(other)))
        return math.fsum(products) / len(products)

    @property
    def size(self) -> int:
        """How many of the members sampled anything."""
        return len({trajectory.member for trajectory in self.members} & {unit.member for unit in self.units})

    def readings(self) -> dict[str, float]:
        """The rewards' sample variance and summed squared deviation; the summed squared norm of the scores."""
        rewards = [float(trajectory.reward or 0.0) for trajectory in self.members]
        variance = sample_variance(rewards)
        squares = 0.0
        for trajectory in self.members:
            its_U = np.array([unit.kind == "score" and unit.member == trajectory.member for unit in self.units], float)
            squares += float(its_U @ self.gram_UU @ its_U)
        return {"variance": variance, "deviation2": variance * (len(rewards) - 1), "score2": squares}


def _mean_credit(unit: Unit, advantages_K: Sequence[float]) -> float:
    """The advantage of the unit's tokens; their mean where turns of different advantage share one ratio."""
    first, *others = {advantages_K[turn] for turn in unit.turns}
    if not others:
        return first
    return math.fsum(count * advantages_K[turn] for turn, count in unit.turns.items()) / sum(unit.turns.values())


class _Collection:
    """Gathers the gradients of one group after the other, whole and in halves, for the noise at the end."""

    def __init__(self, groups: int, length: int, estimator: Estimator) -> None:
        self._estimator = estimator
        self._source = _sources(estimator)
        kept = sorted(set(self._source.values()))
        self._vectors = [{source: torch.zeros(groups, length) for source in kept} for _ in range(_SIDES)]
        self._products = [{source: np.full(groups, np.nan) for source in (*kept, "unbiased")} for _ in range(_SIDES)]
        self._readings = [{name: np.full(groups, np.nan) for name in _READINGS} for _ in range(_SIDES)]
        self._sizes = [np.zeros(groups) for _ in range(_SIDES)]

    def take(self, place: int, trajectories: Sequence[Trajectory], units: Sequence[Unit]) -> None:
        """Add the group number `place`: its trajectories, and the units of those that can be trained on."""
        vectors_UD = torch.stack([unit.vector for unit in units])
        gram_UU = inner_products(vectors_UD, vectors_UD).numpy()
        scored = [one for one in trajectories if one.reward is not None and not math.isnan(one.reward)]
        halves = (scored[::2], scored[1::2]) if len(scored) >= 4 else ()
        for number, members in enumerate((scored, *halves)):
            side = _Members(members, units, gram_UU, self._estimator)
            self._sizes[number][place] = side.size
            for source, vectors_PD in self._vectors[number].items():
                coefficients_U = torch.from_numpy(side.coefficients(source, members)).float()
                vectors_PD[place] = coefficients_U @ vectors_UD
            for source, products_P in self._products[number].items():
                products_P[place] = side.product_of_halves(source)
            for name, value in side.readings().items():
                self._readings[number][name][place] = value

    def noise(self) -> GradientNoise:
        whole, one, other = (self._side(number) for number in range(_SIDES))
        return GradientNoise(whole, (one, other))

    def _side(self, number: int) -> Side:
        vectors, products, readings = self._vectors[number], self._products[number], self._readings[number]
        measured = ~np.isnan(readings["variance"])
        # Times this, the sum over a group's members becomes its share of the mean over all trajectories.
        share = measured.sum() / max(self._sizes[number].sum(), 1)
        source = self._source
        shared = {(source[one], source[other]) for one, other in GRAMS}
        grams = {pair: share**2 * inner_products(vectors[pair[0]], vectors[pair[1]]).numpy() for pair in sorted(shared)}
        return Side(
            grams={(one, other): grams[source[one], source[other]] for one, other in GRAMS},
            prompt_products={part: products[source[part]] for part in PARTS},
            unbiased_products_P=products["unbiased"],
            variance_P=readings["variance"],
            deviation2_P=share * readings["deviation2"],
            score2_P=share * readings["score2"],
        )
