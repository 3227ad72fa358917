"""Cases of `python -m research correlate`: studies whose readings and success are normal, with known correlations.

Two populations. In `Shared` a reading and success each have a level of the run and a part of the evaluation, half of
the variance each. A share of both is common to the runs of a seed, which meet the same tasks. In `Following` success
comes back to its level (an autoregression of order 1), and a reading follows it, or knows a part of its next change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.truth.simulation import Case, Floats
from heedful.types import Metric
from research.correlations.report import success_entries
from research.correlations.runs import RunSeries

SUCCESS, READING = "success", "reading"
LEVEL = 0.5
"""Share of the variance that lies between runs; the rest lies between the evaluations of a run."""


def named(method: str, view: str) -> str:
    """A name without blanks."""
    return f"{method}/{view.replace(',', '').replace(' ', '_')}"


@dataclass(frozen=True)
class Layout:
    """What a study consists of."""

    environments: int
    seeds: int
    arms: int
    """Runs of one environment and seed."""
    evaluations: int

    def __str__(self) -> str:
        return f"{self.environments} x {self.seeds} seeds x {self.arms} runs x {self.evaluations} evaluations"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.environments, self.seeds, self.arms, self.evaluations

    def read(self, pairs_ESATK: Floats) -> list[Metric]:
        """What the command says of readings (first column) and success (second). Environments differ in scale."""
        runs = [
            RunSeries(f"{at}", f"env {at[0]}", {READING: _series(rows[:, 0]), SUCCESS: _series(rows[:, 1])}, at[1])
            for at in np.ndindex(*self.shape[:3])
            for rows in [pairs_ESATK[at] * 10.0 ** at[0]]
        ]
        return [
            Metric(named(entry.method, entry.view), found.value, found.runs, found.low, found.high)
            for entry in success_entries(runs, SUCCESS, READING, READING)
            for found in [entry.found]
        ]


def _series(values_T: Floats) -> dict[int, float]:
    return dict(enumerate(values_T.tolist()))


def _pairs(rho: float, shape: Sequence[int], rng: np.random.Generator) -> Floats:
    """Standard normal pairs of correlation `rho`, in a last axis of two."""
    first, second = rng.normal(size=(2, *shape))
    return np.stack([first, rho * first + math.sqrt(1 - rho**2) * second], axis=-1)


@dataclass(frozen=True)
class Shared:
    """Every part of the variance has the same correlation, so Pearson's is `rho` but between runs."""

    layout: Layout
    rho: float
    common: float
    """Share of the variance that the runs of a seed have in common."""

    def draw(self, rng: np.random.Generator) -> list[Metric]:
        environments, seeds, arms, evaluations = self.layout.shape
        parts = (
            (LEVEL * self.common, (1, 1)),
            (LEVEL * (1 - self.common), (arms, 1)),
            ((1 - LEVEL) * self.common, (1, evaluations)),
            ((1 - LEVEL) * (1 - self.common), (arms, evaluations)),
        )
        drawn = [math.sqrt(share) * _pairs(self.rho, (environments, seeds, *shape), rng) for share, shape in parts]
        return self.layout.read(drawn[0] + drawn[1] + drawn[2] + drawn[3])

    def truths(self) -> dict[str, float]:
        # Between runs the mean reading meets the last success, which has a part of its own.
        ends = self.rho * math.sqrt(LEVEL + (1 - LEVEL) / self.layout.evaluations)
        known = {
            "pearson/all": self.rho,
            "pearson/within_runs": self.rho,
            "pearson/beyond_the_course": self.rho,
            "pearson/between_runs": ends,
            "spearman/within_runs": _within(self.rho, 1) / _within(1, 1),
            "spearman/beyond_the_course": self._beyond(self.rho) / self._beyond(1),
            "spearman/between_runs": _of_ranks(ends) / _of_ranks(1),
        }
        if self.layout.arms > 2:
            known["pearson/between_runs_of_a_seed"] = ends
            known["spearman/between_runs_of_a_seed"] = known["spearman/between_runs"]
        if self.layout.environments == 1:
            known["spearman/all"] = _of_ranks(self.rho) / _of_ranks(1)
        return known

    def _beyond(self, rho: float) -> float:
        """What `_within` leaves once the mean of all runs at each step is gone: those of a seed are alike."""
        own, of_seed = _within(rho, 1), _within(rho, self.common)
        runs = self.layout.seeds * self.layout.arms
        return own - (own + (self.layout.arms - 1) * of_seed) / runs


def _of_ranks(correlation: float) -> float:
    """Proportional to the covariance of the ranks of two normal values (Pearson 1907)."""
    return math.asin(correlation / 2)


def _within(rho: float, share: float) -> float:
    """The covariance of ranks at one step, less that of ranks at different steps; `share` of the variance is common."""
    return _of_ranks(rho * share) - _of_ranks(rho * share * LEVEL)


@dataclass(frozen=True)
class Following:
    """The reading is success now, plus `next_change` times the next change, plus noise; both have a variance of 1."""

    layout: Layout
    next_change: float
    carried: float = 0.6
    """Share of success that is left at the next evaluation."""

    def draw(self, rng: np.random.Generator) -> list[Metric]:
        environments, seeds, arms, evaluations = self.layout.shape
        # Half of what happens is common to the runs of a seed.
        change, noise = (
            math.sqrt(0.5) * rng.normal(size=(environments, seeds, 1, evaluations + 1))
            + math.sqrt(0.5) * rng.normal(size=(environments, seeds, arms, evaluations + 1))
            for _ in range(2)
        )
        success = change.copy()
        for step in range(1, evaluations + 1):
            success[..., step] = self.carried * success[..., step - 1] + self._size * change[..., step]
        reading = success[..., :-1] + self.next_change * change[..., 1:] + noise[..., 1:]
        return self.layout.read(np.stack([reading, success[..., :-1]], axis=-1))

    @property
    def _size(self) -> float:
        """Of a change, so that success has a variance of 1 at every evaluation."""
        return math.sqrt(1 - self.carried**2)

    def truths(self) -> dict[str, float]:
        spread = math.sqrt(1 + self.next_change**2 + 1)
        return {
            "pearson/next_within_runs": (self.carried + self.next_change * self._size) / spread,
            "pearson/next_given_now": self.next_change / math.sqrt(self.next_change**2 + 1),
        }


def _shared(layout: Layout, rho: float, common: float) -> Case:
    study = Shared(layout, rho, common)
    name = f"correlations of {rho:g} in {layout}, {common:g} of the variance common"
    return Case(name, study.draw, study.truths(), batches=400, small=20)


def _following(layout: Layout, next_change: float) -> Case:
    study = Following(layout, next_change)
    knows = f"knows {next_change:g} of the next change" if next_change else "follows success"
    return Case(f"a reading that {knows} in {layout}", study.draw, study.truths(), batches=400, small=20)


_STUDIES = (
    Layout(1, 3, 12, 3),
    Layout(1, 3, 3, 12),
    Layout(1, 6, 3, 5),
    Layout(1, 12, 1, 3),
    Layout(2, 3, 12, 3),
    Layout(3, 3, 12, 3),
    Layout(3, 10, 1, 5),
)
_OFTEN_EVALUATED = (Layout(1, 3, 3, 12), Layout(3, 3, 2, 12), Layout(1, 4, 6, 11), Layout(1, 3, 12, 30))

CASES = (
    *(
        _shared(layout, rho, common)
        for layout in _STUDIES
        for rho, common in ((0.0, 0.5), (0.5, 0.0), (0.5, 0.5), (0.8, 0.5))
    ),
    *(_following(layout, next_change) for layout in _OFTEN_EVALUATED for next_change in (0.0, 1.0)),
)
