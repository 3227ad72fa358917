"""The alarm that watches the update: judged after it, and silent where importance weights were never recorded."""

from __future__ import annotations

import pytest

from heedful.diagnostics.alarms.watch import Alarms, replay
from heedful.types import Metric

NAME = "alarm/sampler_mismatch"
KL = [0.0, 0.02, 0.005, 0.02, 0.03, 0.03, 0.0, 0.0]
RAISED = [None, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]
"""Two steps in a row are beyond .01, and two in a row end it."""


def test_a_sampler_that_is_another_policy_is_an_alarm_after_two_steps() -> None:
    alarms, seen = Alarms(), []
    for step, value in enumerate(KL):
        before = alarms.observe(step, [Metric("success/rate", 0.5, n=10)], of_update=False)
        assert NAME not in [metric.name for metric in before.metrics]
        after = alarms.observe(step, [Metric("policy/importance_kl", value, n=10)], of_update=True)
        seen.append({metric.name: metric.value for metric in after.metrics}.get(NAME))
        assert [alarm.name for alarm in after.raised] == (["sampler_mismatch"] if step == 4 else [])
    assert seen == RAISED


def test_a_replay_of_recorded_steps_raises_it_at_the_same_steps() -> None:
    recorded = [
        (step, {"policy/importance_kl": Metric("policy/importance_kl", value, n=10)}) for step, value in enumerate(KL)
    ]
    found = [{metric.name: metric.value for metric in step.metrics}.get(NAME) for step in replay(recorded)]
    assert found == RAISED


def test_runs_without_importance_weights_have_no_such_metric() -> None:
    (step,) = replay([(0, {"success/rate": Metric("success/rate", 0.5, n=10)})])
    assert NAME not in [metric.name for metric in step.metrics]


def test_an_update_that_follows_groups_with_one_outcome_is_an_alarm_after_five_steps() -> None:
    name, metric = "alarm/shaping_dominates", "policy/advantage_without_outcome"
    shares = [0.4, 0.3, *[0.4] * 5, 0.9, *[0.1] * 5]
    steps = replay([(step, {metric: Metric(metric, value, n=16)}) for step, value in enumerate(shares)])
    told = [{each.name: each.value for each in step.metrics}.get(name) for step in steps]
    assert told == [None, None, None, None, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    (raised,) = (alarm for step in steps for alarm in step.raised)
    assert "--filter drop_constant --filter.on outcome" in raised.sentence()


@pytest.mark.parametrize(("solved", "raised"), [(0.0, True), (0.25, True), (0.3, False), (0.9, False)])
def test_groups_that_are_solved_and_differ_in_attempts_are_no_alarm(solved: float, raised: bool) -> None:
    share, of_solved = "policy/advantage_without_outcome", "signal/solved"
    readings = {share: Metric(share, 0.9, n=16), of_solved: Metric(of_solved, solved, n=16)}
    steps = replay([(step, readings) for step in range(8)])
    last = {each.name: each.value for each in steps[-1].metrics}
    assert last["alarm/shaping_dominates"] == float(raised)
