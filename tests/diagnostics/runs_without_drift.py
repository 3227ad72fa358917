"""Series of readings as runs give them, whose levels do not move unless a test moves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from heedful.diagnostics.behaviour_metrics import rate
from heedful.diagnostics.statistics.intervals import mean_interval
from heedful.types import Metric

TASKS, MEMBERS = 16, 8
EVERY = 4
"""Steps between measurements."""

Levels = Mapping[str, float]
LEVELS: Levels = {
    "success": 0.5,
    "valid": 0.98,
    "entropy": 0.25,
    "gap": 2.4,
    "length": 11.0,
    "strategies": 1.2,
    "oscillation": 0.1,
    "influence": 0.6,
    "unpaid": 0.02,
}
"""Those of a small model in FrozenLake, and their noise below."""


def mean_of(name: str, values: np.ndarray) -> Metric:
    interval = mean_interval(values.tolist())
    assert interval is not None
    return Metric(name, float(values.mean()), len(values), *interval)


def counted(name: str, rng: np.random.Generator, level: float, spread: float) -> Metric:
    """Of binary values of episodes that hang together by task: each task has a rate of its own."""
    own = rng.beta(level / spread, (1 - level) / spread, TASKS)
    values = [(rng.random(MEMBERS) < each).astype(float).tolist() for each in own]
    return rate(name, values, "none")


def readings(step: int, rng: np.random.Generator, levels: Levels) -> dict[str, Metric]:
    """One step: independent tasks, so readings of neighbouring steps are independent, too."""

    def around(name: str, level: float, error: float) -> Metric:
        return mean_of(name, level * (1 + error * rng.standard_normal(TASKS)))

    kinds = rng.multinomial(TASKS, [0.7, 0.18, levels["unpaid"], 0.12 - levels["unpaid"]]) / TASKS
    found = [
        counted("success/rate", rng, levels["success"], 0.5),
        counted("format/valid_rate", rng, levels["valid"], 0.02),
        counted("format/closed_rate", rng, min(1.0, levels["valid"] + 0.01), 0.01),
        counted("grounding/oscillation_rate", rng, levels["oscillation"], 0.2),
        around("policy/entropy_per_token", levels["entropy"], 0.12),
        around("policy/thought_entropy_per_token", levels["entropy"], 0.14),
        around("policy/solved_entropy_per_token", levels["entropy"], 0.16),
        around("grounding/strategy_entropy", levels["strategies"], 0.3),
        around("grounding/distinct_strategies", 0.5 * levels["strategies"], 0.3),
        Metric("filter/kept_ratio", float(kinds[0]), TASKS),
        *(Metric(f"signal/{kind}", float(share), TASKS) for kind, share in zip(KINDS, kinds, strict=True)),
    ]
    if step % EVERY == 0:
        per_token = levels["gap"] * (1 + 0.16 * rng.standard_normal(TASKS))
        lengths = levels["length"] * (1 + 0.1 * rng.standard_normal(TASKS))
        found += [
            mean_of("information/first_turn/gap", per_token * lengths),
            mean_of("information/first_turn/gap_per_token", per_token),
            mean_of("information/first_turn/thought_tokens", lengths),
            around("information/first_turn/entropy_conditional_per_token", levels["entropy"], 0.3),
            around("grounding/thought_influence", levels["influence"], 0.3),
            Metric("retrieval/first_turn/p_value", 0.001 + 0.01 * float(rng.random())),
        ]
    return {metric.name: metric for metric in found}


KINDS = ("mixed", "solved", "unpaid", "failed")


def series(
    rng: np.random.Generator, steps: int = 100, at: Callable[[int], Levels] | None = None
) -> list[tuple[int, dict[str, Metric]]]:
    """A run; `at` gives the levels that differ from the usual ones at a step."""
    return [(step, readings(step, rng, {**LEVELS, **(at(step) if at else {})})) for step in range(steps)]


def correlated(rng: np.random.Generator, correlation: float, steps: int = 100) -> list[tuple[int, dict[str, Metric]]]:
    """A run in which the noise carries over from step to step (AR(1)), normal, with exact intervals."""
    names = {
        "success/rate": (0.5, 0.06, 1),
        "format/valid_rate": (0.95, 0.02, 1),
        "policy/entropy_per_token": (0.25, 0.01, 1),
        "policy/thought_entropy_per_token": (0.25, 0.012, 1),
        "policy/solved_entropy_per_token": (0.25, 0.014, 1),
        "grounding/strategy_entropy": (1.2, 0.1, 1),
        "grounding/oscillation_rate": (0.2, 0.03, 1),
        "information/first_turn/gap": (26.4, 1.8, EVERY),
        "information/first_turn/gap_per_token": (2.4, 0.15, EVERY),
        "information/first_turn/entropy_conditional_per_token": (0.25, 0.03, EVERY),
        "grounding/thought_influence": (0.6, 0.06, EVERY),
    }
    found: dict[int, dict[str, Metric]] = {step: {} for step in range(steps)}
    for name, (level, error, every) in names.items():
        noise = 0.0
        for count, step in enumerate(range(0, steps, every)):
            fresh = float(rng.standard_normal())
            noise = correlation * noise + math.sqrt(1 - correlation**2) * fresh if count else fresh
            value, half = level + error * noise, 1.96 * error
            found[step][name] = Metric(name, value, TASKS, value - half, value + half)
    return sorted(found.items())
