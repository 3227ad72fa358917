"""Cases of intervals over tasks and over seeds: evaluations, gains, studies and areas under ROC curves."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from benchmarks.truth.simulation import Case
from heedful.diagnostics.statistics.intervals import wilson
from heedful.run.evaluation.held_out import over_tasks, paired_gain, success_metric, task_gains, task_rates
from heedful.studies.paired import Count, mean_over, paired_difference
from heedful.types import Ending, Group, Metric, Task, Trajectory
from research.detector.roc import Sample, area

Draw = Callable[[np.random.Generator], list[Metric]]


def _played(chances: np.ndarray, samples: int, rng: np.random.Generator) -> list[Group]:
    groups = []
    for number, chance in enumerate(chances):
        task = Task(f"task-{number}", number, "val")
        solved = rng.random(samples) < chance
        groups.append(
            Group(task, tuple(Trajectory(task, at, (), Ending.FAILED, float(s)) for at, s in enumerate(solved)))
        )
    return groups


def _success(label: str, tasks: int, samples: int, a: float, b: float) -> Case:
    def draw(rng: np.random.Generator) -> list[Metric]:
        return [success_metric("eval/val/sampled/success", _played(rng.beta(a, b, tasks), samples, rng))]

    truths = {"eval/val/sampled/success": a / (a + b)}
    return Case(f"evaluation of {tasks} tasks x {samples}, {label}", draw, truths)


def _wilson(rate: float, trials: int) -> Case:
    def draw(rng: np.random.Generator) -> list[Metric]:
        hits = int(rng.binomial(trials, rate))
        return [
            Metric("eval/val/greedy/success", hits / trials, trials, *wilson(hits, trials)),
            Count(hits, trials).metric,
        ]

    truths = {"eval/val/greedy/success": rate, "count": rate}
    return Case(f"{trials} independent trials, rate {rate:g}", draw, truths, batches=4000)


def _gain(label: str, tasks: int, samples: int, moved: float, by: float) -> Case:
    """A share of the tasks gains; the others stay. Before, the chance of success is even from 0 to 1 - by."""

    def draw(rng: np.random.Generator) -> list[Metric]:
        before = rng.random(tasks) * (1 - by)
        after = before + by * (rng.random(tasks) < moved)
        played = [_played(chances, samples, rng) for chances in (before, after)]
        rates = [task_rates(groups) for groups in played]
        metric = paired_gain("gain/sampled", *played)
        return [metric, over_tasks("gain_over_tasks", [task_gains(*rates)])]

    truths = {"gain/sampled": moved * by, "gain_over_tasks": moved * by}
    return Case(f"{label}, {tasks} tasks x {samples}", draw, truths, batches=600)


def _seeds(label: str, seeds: int, draw_values: Callable[[np.random.Generator, int], np.ndarray], truth: float) -> Case:
    def draw(rng: np.random.Generator) -> list[Metric]:
        arm, control = (dict(enumerate(draw_values(rng, seeds).tolist())) for _ in range(2))
        difference = paired_difference("difference", arm, control).mean
        return [mean_over("mean_over_seeds", list(arm.values())), difference]

    truths = {"mean_over_seeds": truth, "difference": 0.0}
    return Case(f"{seeds} seeds, {label}", draw, truths)


def _normal(rng: np.random.Generator, seeds: int) -> np.ndarray:
    return rng.normal(0.5, 0.1, seeds)


def _collapsing(rng: np.random.Generator, seeds: int) -> np.ndarray:
    """One run in five collapses."""
    return np.where(rng.random(seeds) < 0.2, 0.1, 0.6) + rng.normal(0, 0.02, seeds)


def _area(runs: int, distance: float, within: float) -> Case:
    """Runs have levels of their own, and 10 values each around them."""
    names = [str(run) for run in range(runs) for _ in range(10)]

    def draw(rng: np.random.Generator) -> list[Metric]:
        levels = distance + rng.normal(size=runs), rng.normal(size=runs)
        x, y = ((own[:, None] + within * rng.normal(size=(runs, 10))).ravel() for own in levels)
        sides = Sample(tuple(x), tuple(f"x{n}" for n in names)), Sample(tuple(y), tuple(f"y{n}" for n in names))
        found = area(*sides, "higher")
        low, high = found.interval or (None, None)
        return [Metric("area", found.value, len(x), low, high)]

    true = 0.5 * (1 + math.erf(distance / math.sqrt(2 * (1 + within**2)) / math.sqrt(2)))
    return Case(
        f"ROC area, {runs} + {runs} runs, true area {true:.2f}, within {within:g}", draw, {"area": true}, batches=500
    )


CASES = (
    *(
        _success(*each)
        for each in (
            ("half solved", 64, 4, 2.0, 2.0),
            ("3% solved", 64, 4, 0.2, 5.8),
            ("97% solved", 64, 4, 5.8, 0.2),
            ("10% solved", 16, 4, 0.5, 4.5),
            ("few tasks always solved", 32, 8, 0.05, 0.45),
        )
    ),
    *(_wilson(rate, trials) for trials in (16, 64, 256) for rate in (0.02, 0.1, 0.5)),
    _wilson(0.0026, 64),
    _gain("all tasks gain .1", 64, 4, 1.0, 0.1),
    _gain("one task in ten gains", 64, 4, 0.1, 0.5),
    _gain("one task in fifty is learned", 64, 1, 0.02, 1.0),
    _gain("one task in ten is learned", 32, 1, 0.1, 1.0),
    *(_seeds("normal", seeds, _normal, 0.5) for seeds in (2, 3, 5, 10)),
    *(_seeds("one in five collapses", seeds, _collapsing, 0.5) for seeds in (3, 5, 10)),
    *(_area(runs, distance, within) for runs in (2, 3, 6, 12) for distance in (0.0, 2.0) for within in (0.1, 1.0)),
    _area(6, 3.5, 1.0),
)
