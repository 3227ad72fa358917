"""Cases of `gradient/all/*_trend`: groups of four kinds, each with its own variance of rewards and size of gradient.

The kinds are equally likely, so their ranks are known, and with them the slope of the expected norm over the rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.truth.simulation import Case, Floats
from heedful.diagnostics.gradient.metrics import PARTS
from heedful.diagnostics.gradient.scope import GradientNoise, Side
from heedful.diagnostics.gradient.trend import trend_metrics
from heedful.types import Metric

VARIANCES = np.array([0.0, 0.1, 0.2, 0.25])
CLIMBING = np.array([0.5, 0.8, 1.2, 1.5])
FLAT = np.array([2.0, 2.0, 2.0, 2.0])
SPREAD = 0.5
"""Standard deviation of the logarithm of a group's norm: one half of a group is to another as it is to the mean."""


@dataclass(frozen=True)
class Kinds:
    """A batch of groups, each of one of the kinds."""

    groups: int

    def draw(self, rng: np.random.Generator) -> list[Metric]:
        kind_P = rng.integers(len(VARIANCES), size=self.groups)
        own_P = rng.normal(0, SPREAD, self.groups)  # what both halves of a group share
        halves = [self._side(kind_P, own_P, rng) for _ in range(2)]
        return trend_metrics(GradientNoise(halves[0], (halves[0], halves[1])), PARTS)

    def _side(self, kind_P: np.ndarray, own_P: Floats, rng: np.random.Generator) -> Side:
        grams = {}
        for part in PARTS:
            means = CLIMBING if part.startswith("task") else FLAT
            noise_P = np.exp(own_P + rng.normal(0, SPREAD, self.groups))
            grams[part, part] = np.diag((means[kind_P] * noise_P) ** 2)
        rest = np.zeros(self.groups)
        return Side(grams, {}, rest, VARIANCES[kind_P], rest, rest)

    def truths(self) -> dict[str, float]:
        shares = (2 * np.arange(len(VARIANCES)) + 1) / (2 * len(VARIANCES))
        deviations = shares - shares.mean()
        climbing, flat = (
            float(deviations @ norms / (deviations @ deviations) / norms.mean()) for norms in (CLIMBING, FLAT)
        )
        return {
            "gradient/all/task_undivided_trend": climbing,
            "gradient/all/kl_trend": flat,
            "gradient/all/task_undivided_trend_over_kl": climbing - flat,
        }


CASES = tuple(
    Case(f"trend: {groups} groups of four kinds", Kinds(groups).draw, Kinds(groups).truths(), batches=500, small=20)
    for groups in (32, 64)
)
