"""Signal and filter metrics: hand-counted groups."""

import math
import random
from dataclasses import replace

import pytest
from episodes import by_name, episode, group, outcomes, turn

from heedful.diagnostics.signal import cause_metrics, episode_metrics, rollout_metrics, spread_metrics, verdict_metrics
from heedful.filters import TopP
from heedful.types import PROBE, Verdict


def test_spread_is_the_mean_of_sample_statistics_over_groups():
    # Variances 1/2, 2, 0; the group with one scored member has none.
    found = by_name(spread_metrics([[0.0, 1.0], [0.0, 2.0, None], [0.3, 0.3], [1.0, None]]))
    variance, std = found["signal/reward_variance"], found["signal/reward_std"]
    assert (variance.value, variance.n) == (pytest.approx(2.5 / 3), 3)
    assert std.value == pytest.approx((math.sqrt(0.5) + math.sqrt(2)) / 3)
    assert variance.low == 0.0
    assert variance.high > 2.5 / 3
    # Sample std of (1/2, 2, 0) = 1.0408, over 5/6.
    assert found["signal/variance_dispersion"].value == pytest.approx(1.040833 / 0.833333, abs=1e-5)


def test_spread_of_constant_groups_is_zero_and_has_no_dispersion():
    found = by_name(spread_metrics([[0.1 + 0.2, 0.3], [1.0, 1.0]]))
    assert found["signal/reward_std"].value == 0.0
    assert found["signal/variance_dispersion"].value is None
    assert found["signal/variance_dispersion"].why == "all groups are constant"


def test_where_a_chooser_chose_episodes_are_those_of_its_probes():
    chosen = [outcomes("a", 1.0, 0.0), outcomes("b", 1.0, 1.0)]
    probe = outcomes("c", 0.0, 0.0)
    probe = replace(probe, task=replace(probe.task, tags=("short", PROBE)))
    found = by_name(episode_metrics([*chosen, probe]))
    assert (found["success/rate"].value, found["success/rate"].n) == (0.0, 2)
    assert (found["success/chosen"].value, found["success/chosen"].n) == (0.75, 4)
    assert found.keys() - by_name(episode_metrics(chosen)).keys() == {"success/chosen"}
    assert by_name(episode_metrics(chosen))["success/rate"].value == 0.75


def test_groups_of_one_have_no_spread_and_say_so():
    for metric in spread_metrics([[1.0], [0.0]]):
        assert metric.value is None
        assert "two scored members" in metric.why


def shares(groups, values_PG=None):
    values_PG = values_PG or [[trajectory.outcome for trajectory in group.trajectories] for group in groups]
    found = by_name(cause_metrics(groups, values_PG))
    return {name.removeprefix("signal/"): metric.value for name, metric in found.items()}


def test_causes_are_told_apart_in_the_order_of_their_definition():
    groups = [
        outcomes("mixed", 0.0, 1.0, progress=[0.2, 1.0]),
        outcomes("solved", 1.0, 1.0, progress=[0.9, 1.0]),
        outcomes("unpaid", 0.0, 0.0, 0.0, progress=[1.0, 0.6, 1.0]),
        outcomes("failed", 0.0, 0.0, progress=[0.5, 1.0]),
        outcomes("partial", 0.5, 0.5, progress=[0.5, 0.5]),
    ]
    assert shares(groups) == {"mixed": 0.2, "solved": 0.2, "unpaid": 0.2, "failed": 0.4}


def test_members_that_failed_after_different_progress_are_failed():
    assert shares([outcomes("hard", 0.0, 0.0, progress=[0.1, 0.6])]) == {
        "mixed": 0.0,
        "solved": 0.0,
        "unpaid": 0.0,
        "failed": 1.0,
    }


def test_a_group_with_a_success_that_earned_nothing_is_unpaid():
    groups = [outcomes("a", 0.0, 1.0, progress=[0.5, 0.5])]
    assert shares(groups, [[0.0, 0.0]])["unpaid"] == 1.0


def test_without_progress_an_unpaid_group_cannot_be_told_from_a_failed_one():
    groups = [outcomes("a", 0.0, 1.0), outcomes("b", 0.0, 0.0)]
    found = by_name(cause_metrics(groups, [[0.0, 1.0], [0.0, 0.0]]))
    assert (found["signal/unpaid"].value, found["signal/unpaid"].why) == (None, "the environment reports no progress")
    assert found["signal/failed"].value == found["signal/mixed"].value == 0.5


def test_unscored_members_and_groups_have_no_cause():
    groups = [outcomes("a", 1.0, None, 1.0), outcomes("b", 1.0, None)]
    found = by_name(cause_metrics(groups, [[1.0, None, 1.0], [1.0, None]]))
    assert (found["signal/solved"].value, found["signal/solved"].n) == (1.0, 1)
    nothing = by_name(cause_metrics(groups[1:], [[1.0, None]]))
    assert all(metric.value is None for metric in nothing.values())


def test_verdicts_are_counted_with_their_reasons():
    values_PG = [[0.0, 2.0], [0.0, 1.0], [0.3, 0.3], [1.0, None]]
    verdicts = TopP(p=0.5)(values_PG, random.Random(0))
    found = by_name(verdict_metrics(values_PG, verdicts))
    assert {name.removeprefix("filter/"): metric.value for name, metric in found.items()} == {
        "kept_ratio": 0.25,
        "kept_groups": 1.0,
        "mass_kept": 0.8,
        "kept_without_signal": 0.0,
        "dropped/below_mass": 1.0,
        "dropped/constant": 1.0,
        "dropped/unscored": 1.0,
    }
    assert found.pop("filter/kept_without_signal").n == 1, "of the kept groups"
    assert {metric.n for metric in found.values()} == {4}


def test_kept_mass_is_of_variance_whatever_the_filter_ranks_by():
    verdicts = [Verdict(1.0, "kept", 123.0), Verdict(0.0, "not_drawn", 5.0)]
    found = by_name(verdict_metrics([[0.0, 1.0], [0.0, 2.0]], verdicts))
    assert found["filter/mass_kept"].value == pytest.approx(0.2)
    assert found["filter/dropped/constant"].value == 0.0


def test_nothing_to_keep_is_missing_and_not_zero():
    values_PG = [[1.0, 1.0]]
    found = by_name(verdict_metrics(values_PG, TopP()(values_PG, random.Random(0))))
    assert (found["filter/kept_groups"].value, found["filter/mass_kept"].value) == (0.0, None)
    assert by_name(verdict_metrics([], []))["filter/kept_ratio"].value is None


def test_rollout_metrics_look_at_the_values_of_the_filter():
    episodes = [
        episode(0.0, turn({"format": -0.1, "solved": 0.0})),
        episode(0.0, turn({"format": 0.0, "solved": 0.0})),
    ]
    groups = [group("a", *episodes)]
    for on, variance in (("outcome", 0.0), ("reward", 0.005), ("format", 0.005), ("solved", 0.0)):
        found = by_name(rollout_metrics(groups, [Verdict(1.0, "kept", variance)], on))
        assert found["signal/reward_variance"].value == pytest.approx(variance)
    assert found["reward/format"].value == pytest.approx(-0.05)
    assert rollout_metrics([], [], "outcome"), "an empty step still reports, with reasons"


def test_groups_that_are_kept_without_signal_are_counted_by_weight():
    values_PG = [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    verdicts = [Verdict(1.0, "kept", 0.5), Verdict(0.5, "kept", 0.0), Verdict(0.0, "constant", 0.0)]
    found = by_name(verdict_metrics(values_PG, verdicts))["filter/kept_without_signal"]
    assert (found.value, found.n) == (pytest.approx(0.5 / 1.5), 2)
    nothing = by_name(verdict_metrics(values_PG[2:], verdicts[2:]))["filter/kept_without_signal"]
    assert (nothing.value, nothing.why) == (None, "nothing was kept")
