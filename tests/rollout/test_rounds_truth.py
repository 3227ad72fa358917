"""What pooled figures and gradients say under dynamic sampling: every course of a small step is enumerated.

One group is wanted, and a second one is drawn if the first is constant. A group varies with chance `q`. The expected
value of each figure is a sum over the courses of the step, and the truth is that of the population of groups.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from heedful.algorithms.table import loss_scale_factor
from heedful.diagnostics.behaviour_metrics import behaviour
from heedful.diagnostics.signal import cause_metrics, spread_metrics
from heedful.filters import KeepAll
from heedful.rollout import Collection, Standing, collect_in_rounds
from heedful.rollout.plans import Refill
from heedful.run.selection import Selection
from heedful.types import Ending, Group, Metric, Task, Trajectory

KINDS = {(0.0, 0.0): 0.5, (1.0, 1.0): 0.2, (0.0, 1.0): 0.3}
"""Outcomes of a group -> its chance."""
VARYING = 0.3
TRUTHS = {"success/rate": 0.35, "success/any_of_group": 0.5, "signal/mixed": VARYING, "signal/reward_variance": 0.15}


def group(outcomes: tuple[float, ...], number: int) -> Group:
    task = Task(f"task-{number}", number, "train")
    members = [Trajectory(task, at, (), Ending.FAILED, outcome) for at, outcome in enumerate(outcomes)]
    return Group(task, tuple(members))


def collect(drawn: list[Group]) -> Collection:
    """The step whose n-th round plays the n-th of these groups."""
    now = Standing(1, 2, "outcome", lambda count: [group((), 0).task] * count, random.Random(0))
    return collect_in_rounds(Refill(2), now, lambda number, asks: [drawn[number]])


def courses() -> Iterator[tuple[float, Collection]]:
    """Every course of the step with its chance."""
    for first, chance in KINDS.items():
        for second, other in KINDS.items():
            drawn = [group(first, 0), group(second, 1)]
            yield chance * other, collect(drawn)


def readings(groups: tuple[Group, ...]) -> dict[str, float]:
    values = [[member.outcome for member in each.trajectories] for each in groups]
    metrics: list[Metric] = [*behaviour(groups), *spread_metrics(values), *cause_metrics(groups, values)]
    return {metric.name: metric.value for metric in metrics if isinstance(metric.value, float)}


def expected(of: Callable[[Collection], float]) -> float:
    return sum(chance * of(collection) for chance, collection in courses())


@pytest.mark.parametrize("name", TRUTHS)
def test_the_first_draw_reads_the_truth_and_all_draws_lean_towards_groups_that_vary(name: str) -> None:
    assert expected(lambda step: readings(step.groups[:1])[name]) == pytest.approx(TRUTHS[name])
    # A step ends early where groups vary. So their mean, `varied`, weighs more than in the population: by
    # q (1 - q) (varied - constant) / 2.
    constant = {
        "success/rate": 2 / 7,
        "success/any_of_group": 2 / 7,
        "signal/mixed": 0.0,
        "signal/reward_variance": 0.0,
    }
    varied = {"success/rate": 0.5, "success/any_of_group": 1.0, "signal/mixed": 1.0, "signal/reward_variance": 0.5}
    lean = VARYING * (1 - VARYING) * (varied[name] - constant[name]) / 2
    assert expected(lambda step: readings(step.groups)[name]) == pytest.approx(TRUTHS[name] + lean)


@pytest.mark.parametrize(("scale", "factor"), [("kept", 2 - VARYING), ("all", 1 + (1 - VARYING) / 2)])
def test_refills_stretch_the_expected_gradient_and_leave_its_direction(scale: str, factor: float) -> None:
    # Two kinds of groups that vary have gradients of their own; a constant one has none.
    gradients = {(0.0, 1.0): 1.0, (1.0, 0.0): -3.0}
    kinds = {(0.0, 0.0): 0.7, (0.0, 1.0): 0.2, (1.0, 0.0): 0.1}
    totals = dict.fromkeys(gradients, 0.0)
    selection = Selection(KeepAll())
    for first, chance in kinds.items():
        for second, other in kinds.items():
            drawn = [group(first, 0), group(second, 1)]
            step = collect(drawn)
            verdicts = selection.choose(0, step, random.Random(0))
            kept = [each for each, verdict in zip(step.groups, verdicts, strict=True) if verdict.kept]
            weight = loss_scale_factor(scale, len(kept), len(step.groups)) if kept else 0.0  # type: ignore[arg-type]
            for each in kept:
                outcomes = tuple(member.outcome for member in each.trajectories)
                totals[outcomes] += chance * other * weight / len(kept) * gradients[outcomes]  # type: ignore[index]
    # Without refills, `all` would give each kind its chance times its gradient.
    assert totals[0.0, 1.0] == pytest.approx(factor * 0.2 * 1.0)
    assert totals[1.0, 0.0] == pytest.approx(factor * 0.1 * -3.0)
