"""The alarm that watches the update: judged after it, and silent where its metric was never recorded."""

from __future__ import annotations

import pytest

from heedful.diagnostics.alarms.watch import Alarms, replay
from heedful.types import Metric


def test_an_update_that_follows_groups_with_one_outcome_is_an_alarm_after_five_steps() -> None:
    name, metric = "alarm/shaping_dominates", "policy/advantage_without_outcome"
    shares = [0.4, 0.3, *[0.4] * 5, 0.9, *[0.1] * 5]
    expected = [None, None, None, None, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    steps = replay([(step, {metric: Metric(metric, value, n=16)}) for step, value in enumerate(shares)])
    assert [{each.name: each.value for each in step.metrics}.get(name) for step in steps] == expected
    (raised,) = (alarm for step in steps for alarm in step.raised)
    alarms, told = Alarms(), []
    for step, value in enumerate(shares):
        before = alarms.observe(step, [Metric("success/rate", 0.5, n=10)], of_update=False)
        assert name not in [each.name for each in before.metrics]
        after = alarms.observe(step, [Metric(metric, value, n=16)], of_update=True)
        told.append({each.name: each.value for each in after.metrics}.get(name))
    assert told == expected
    assert "--filter drop_constant --filter.on outcome" in raised.sentence()


@pytest.mark.parametrize(("solved", "raised"), [(0.0, True), (0.25, True), (0.3, False), (0.9, False)])
def test_groups_that_are_solved_and_differ_in_attempts_are_no_alarm(solved: float, raised: bool) -> None:
    share, of_solved = "policy/advantage_without_outcome", "signal/solved"
    readings = {share: Metric(share, 0.9, n=16), of_solved: Metric(of_solved, solved, n=16)}
    steps = replay([(step, readings) for step in range(8)])
    last = {each.name: each.value for each in steps[-1].metrics}
    assert last["alarm/shaping_dominates"] == float(raised)


def test_an_unpaid_task_is_an_alarm_at_once_that_names_it() -> None:
    name, metric = "alarm/unpaid_tasks", "treat/unpaid"
    counts = [Metric(metric, 0.0, 9), Metric(metric, 2.0, 9, why="chain-a, chain-b"), Metric(metric, 0.0, 9)]
    steps = replay([(step, {metric: each}) for step, each in enumerate(counts)])
    assert [{each.name: each.value for each in step.metrics}.get(name) for step in steps] == [0.0, 1.0, 0.0]
    (raised,) = (alarm for step in steps for alarm in step.raised)
    assert "chain-a, chain-b" in raised.sentence()
    assert "do not train on these tasks" in raised.sentence()
    assert name not in [each.name for step in replay([(0, {})]) for each in step.metrics]
