"""What each setting of a crossed design does on average over the others, from one run of each arm."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from scipy.special import stdtrit

from heedful.diagnostics.statistics.intervals import LEVEL
from heedful.studies.declaration import Study
from heedful.studies.outcomes import Outcomes, Reading, Table
from heedful.studies.tables import signed
from heedful.types import Metric
from research.detector.candidates import Hunt

ROUNDING = 1e-9
"""Relative. Residuals below it are those of arms that agree."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A setting of two levels."""

    name: str
    """The level whose effect is told, such as `top_p`."""
    against: str
    """The other level."""
    arms: tuple[str, ...]
    """The arms at the first of the two."""


@dataclass(frozen=True, slots=True)
class Factorial:
    """What each of several settings does on average over the others: their levels are crossed in these arms."""

    title: str
    arms: tuple[str, ...]
    factors: tuple[Factor, ...]
    measures: tuple[str, ...] = ()
    """Titles of the measures that are read; empty = all. The verdict tells the effects on the first one."""

    @property
    def arms_read(self) -> tuple[str, ...]:
        return (*self.arms, *(name for factor in self.factors for name in factor.arms))

    def among(self, arms: Collection[str]) -> Factorial | None:
        """With the arms that are left; `None` without any."""
        kept = tuple(name for name in self.arms if name in arms)
        factors = (replace(factor, arms=tuple(name for name in factor.arms if name in arms)) for factor in self.factors)
        return replace(self, arms=kept, factors=tuple(factors)) if kept else None

    def read(self, study: Study, outcomes: Outcomes) -> Reading:
        """The table of effects, and the clear ones in sentences."""
        by_arm = {
            each.measure.title: {arm.arm: arm.by_seed for arm in each.arms}
            for each in outcomes.measures
            if not self.measures or each.measure.title in self.measures
        }
        repeated = {seed for each in study.outcomes if isinstance(each, Hunt) for seed in each.fresh_seeds}
        found = read_factorial(self, by_arm, repeated)
        lead = (
            "The mean of the arms with a setting minus that of the arms with the other one, by least squares on all "
            "settings at once. The noise of the 95% intervals is what they leave unexplained. What two settings do "
            "together counts as noise."
        )
        caption = f"{self.title}: effects with 95% intervals."
        rows = [["measure", "arms", *(f"{factor.name} against {factor.against}" for factor in self.factors)]]
        rows += [[title, str(each[0].n or 0), *map(signed, each)] for title, each in found.effects.items()]
        return Reading(found, (Table(self.title, lead, caption, rows),), tuple(_crossed(found)))


@dataclass(frozen=True, slots=True)
class FactorialOutcome:
    """The effects on each measure: title -> one per factor, in their order."""

    spec: Factorial
    effects: Mapping[str, tuple[Metric, ...]]


def read_factorial(
    spec: Factorial, by_arm: Mapping[str, Mapping[str, Mapping[int, float]]], without: Collection[int]
) -> FactorialOutcome:
    """`by_arm`: title of a measure -> arm -> seed -> value. An arm counts once, with its mean over seeds.

    `without`: seeds that repeat chosen arms alone, and would weigh these more.
    """
    found = {}
    for title, values in by_arm.items():
        means = {
            arm: fmean(kept)
            for arm in spec.arms
            if (kept := [value for seed, value in values.get(arm, {}).items() if seed not in without])
        }
        levels_NF = [[arm in factor.arms for factor in spec.factors] for arm in means]
        found[title] = main_effects(title, list(means.values()), levels_NF, len(spec.factors))
    return FactorialOutcome(spec, found)


def main_effects(
    name: str, values_N: Sequence[float], levels_NF: Sequence[Sequence[bool]], factors: int
) -> tuple[Metric, ...]:
    """What the second level of each factor adds, with a 95% interval, n = values.

    Least squares on all factors at once. The noise is what they leave unexplained, with N - F - 1 degrees of freedom.
    So effects of two factors together widen the intervals, and in a design of resolution V they bias no effect. Source:
    Box, Hunter and Hunter, Statistics for Experimenters, chapter 6.
    """
    count = len(values_N)
    design_NC = np.column_stack([np.ones(count), np.array(levels_NF, dtype=float).reshape(count, factors) - 0.5])
    if count <= factors or np.linalg.matrix_rank(design_NC) <= factors:
        why = f"the {count} arms that are over do not tell the settings apart"
        return tuple(Metric(name, None, count, why=why) for _ in range(factors))
    y_N = np.array(values_N)
    inverse_CC = np.linalg.inv(design_NC.T @ design_NC)
    found_C = inverse_CC @ design_NC.T @ y_N
    freedom, left = count - factors - 1, float(np.sum((y_N - design_NC @ found_C) ** 2))
    if freedom < 1 or left <= (ROUNDING * float(np.abs(y_N).max())) ** 2 * count:
        why = "no interval: no arm is left over to take the noise from" if freedom < 1 else "no interval: no noise"
        return tuple(Metric(name, float(effect), count, why=why) for effect in found_C[1:])
    half_C = float(stdtrit(freedom, (1 + LEVEL) / 2)) * np.sqrt(left / freedom * np.diag(inverse_CC))
    return tuple(
        Metric(name, float(effect), count, float(effect - half), float(effect + half))
        for effect, half in zip(found_C[1:], half_C[1:], strict=True)
    )


def is_clear(effect: Metric) -> bool:
    """The interval leaves zero out."""
    return effect.low is not None and effect.high is not None and (effect.low > 0 or effect.high < 0)


def _crossed(outcome: FactorialOutcome) -> list[str]:
    """How many effects are clear, and those on the first measure."""
    effects = [effect for each in outcome.effects.values() for effect in each if effect.value is not None]
    clear = sum(map(is_clear, effects))
    if not effects:
        return [f"{outcome.spec.title}: unknown, too few arms are over."]
    first, found = next(iter(outcome.effects.items()))
    told = [
        f"{factor.name} against {factor.against} {signed(effect)}"
        for factor, effect in zip(outcome.spec.factors, found, strict=True)
        if is_clear(effect)
    ]
    by_chance = f"about {len(effects) / 20:.2g} would be, by chance"
    return [
        f"{outcome.spec.title}: {clear} of {len(effects)} effects are clear. Where nothing matters, {by_chance}.",
        f"{outcome.spec.title}, {first}: {'; '.join(told) or 'no effect is clear'}.",
    ]
