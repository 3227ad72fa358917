"""What episodes were like: hand-counted means, their n, and intervals that respect tasks."""

import math

import pytest
from episodes import by_name, episode, group, outcomes, turn

from heedful.diagnostics.behaviour_metrics import behaviour, component_of
from heedful.diagnostics.statistics.intervals import wilson


def test_rewards_are_means_over_scored_episodes():
    groups = [
        group("a", episode(1.0, turn({"step": -0.1}), turn({"step": -0.1, "solved": 1.0})), episode(None, turn())),
        group("b", episode(0.0, turn({"step": -0.1}))),
    ]
    found = by_name(behaviour(groups))
    assert (found["reward/mean"].value, found["reward/mean"].n) == (pytest.approx(0.35), 2)
    assert found["reward/step"].value == pytest.approx(-0.15)
    assert found["reward/solved"].value == pytest.approx(0.5)
    assert (found["success/rate"].value, found["success/rate"].n) == (0.5, 2)


def test_a_component_with_the_name_of_the_sum_has_a_metric_of_its_own():
    rewards = {"mean": 3.0, "component/mean": 2.0, "meaning": 1.0}
    found = behaviour([group("a", episode(1.0, turn(rewards)), episode(0.0, turn({"mean": 1.0})))])
    names = [metric.name for metric in found if metric.name.startswith("reward/")]
    assert sorted(names) == [
        *("reward/component/component/mean", "reward/component/mean", "reward/mean", "reward/meaning")
    ]
    assert [by_name(found)[name].value for name in ("reward/mean", "reward/component/mean")] == [3.5, 2.0]
    assert {component_of(name) for name in names if name != "reward/mean"} == {*rewards}


def test_success_of_several_episodes_a_task_has_wilsons_interval_for_as_many_trials_as_the_tasks_agree_on():
    groups = [outcomes("a", 1.0, 1.0, 0.0, 1.0), outcomes("b", 0.0, 0.0, 0.0, 1.0), outcomes("c", 1.0, 1.0, 0.0, 0.0)]
    rate = by_name(behaviour(groups))["success/rate"]
    assert (rate.value, rate.n) == (0.5, 12)
    # Squared error of the mean of .75, .25 and .5: .0625 / 3. That of 12 independent trials: .25 / 12, the same.
    t2 = 4.302653**2
    half = math.sqrt(t2 * (0.25 / 12 + t2 / (4 * 12**2))) / (1 + t2 / 12)
    assert (rate.low, rate.high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


def test_values_that_all_agree_give_no_interval_because_its_width_would_be_zero():
    metrics = by_name(behaviour([outcomes(task, 0.0, 0.0, progress=[0.5, 0.5]) for task in "abc"]))
    progress = metrics["success/progress"]
    assert (progress.value, progress.low, progress.high) == (0.5, None, None)
    assert progress.why == "no interval: all tasks agree"


def test_success_of_one_episode_a_task_has_wilsons_interval():
    groups = [outcomes(str(number), float(number < 3)) for number in range(10)]
    rate = by_name(behaviour(groups))["success/rate"]
    assert (rate.low, rate.high) == pytest.approx(wilson(3, 10))


def test_tasks_that_all_agree_still_leave_doubt():
    found = by_name(behaviour([outcomes(str(number), 1.0, 1.0, 1.0) for number in range(4)]))
    assert (found["success/rate"].low, found["success/rate"].high) == pytest.approx(wilson(4, 4))
    assert found["format/valid_rate"].low == pytest.approx(wilson(4, 4).low)


def test_groups_of_the_same_task_are_one_cluster():
    others = [outcomes(str(number), 1.0, 0.0, 0.0, float(number % 2)) for number in range(8)]
    halves = [outcomes("a", 1.0, 0.0), outcomes("a", 1.0, 1.0), *others]
    whole = [outcomes("a", 1.0, 0.0, 1.0, 1.0), *others]
    assert by_name(behaviour(halves))["success/rate"] == by_name(behaviour(whole))["success/rate"]
    assert by_name(behaviour(halves))["success/any_of_group"].n == 10


def test_any_of_group_counts_groups_with_a_success():
    groups = [outcomes("a", 0.0, 1.0), outcomes("b", 0.0, None), outcomes("c", 0.0, 0.5), outcomes("d", None, None)]
    found = by_name(behaviour(groups))["success/any_of_group"]
    assert (found.value, found.n) == (pytest.approx(1 / 3), 3)


def test_format_and_lengths_are_means_over_turns():
    groups = [
        group(
            "a",
            # 6 tokens: 2 of thought, 2 of answer, 1 trailing, the end of turn.
            episode(1.0, turn(), turn(valid=False, closed=False, tokens=9, thought=9, answer=0, cut=True)),
            episode(0.0, turn(tokens=10, thought=3, answer=4, cut=True)),
        )
    ]
    found = by_name(behaviour(groups))
    assert found["format/valid_rate"].value == pytest.approx(2 / 3)
    assert found["format/closed_rate"].value == pytest.approx(2 / 3)
    assert found["format/trailing_tokens"].value == pytest.approx((1 + 0 + 3) / 3)
    assert found["length/reasoning_tokens"].value == pytest.approx((2 + 9 + 3) / 3)
    assert found["length/response_tokens"].value == pytest.approx((6 + 9 + 10) / 3)
    assert (found["length/turns"].value, found["length/turns"].n) == (1.5, 2)
    assert found["format/valid_rate"].n == 3
    assert found["length/turns"].why == "no interval: a single task"


def test_trailing_tokens_are_never_negative():
    groups = [group("a", episode(1.0, turn(tokens=4, thought=2, answer=2)))]
    assert by_name(behaviour(groups))["format/trailing_tokens"].value == 0.0


def test_entropy_is_a_mean_over_sampled_tokens_and_not_over_turns():
    groups = [
        group("a", episode(1.0, turn(entropies=[1.0]), turn(entropies=[0.0, 0.5, 0.5]))),
        group("b", episode(1.0, turn(entropies=()), turn(entropies=[2.0]))),
    ]
    found = by_name(behaviour(groups))["policy/entropy_per_token"]
    assert (found.value, found.n) == (pytest.approx(4.0 / 5), 5)
    assert found.low == 0.0
    assert found.high > 0.8


def test_unknown_entropies_are_missing():
    silent = by_name(behaviour([outcomes("a", 1.0)]))["policy/entropy_per_token"]
    assert (silent.value, silent.why) == (None, "the sampler reports no entropies")


def test_a_batch_without_scored_episodes_says_so():
    found = by_name(behaviour([outcomes("a", None, None)]))
    for name in ("reward/mean", "success/rate", "success/any_of_group"):
        assert (found[name].value, found[name].why) == (None, "no episode was scored")
    assert found["format/valid_rate"].value == 1.0
    assert all(metric.value is None for metric in behaviour([]))


def test_every_number_is_a_plain_float():
    for metric in behaviour([outcomes("a", 1.0, 0.0), outcomes("b", 1.0, 1.0)]):
        assert all(type(number) in (float, type(None)) for number in (metric.value, metric.low, metric.high))


def test_entropy_is_told_apart_by_place_and_by_success():
    one = episode(1.0, turn(tokens=4, thought=2, answer=1, entropies=[1.0, 2.0, 0.5, 9.0]))
    other = episode(0.0, turn(tokens=3, thought=1, answer=2, entropies=[4.0, 0.1, 0.3]))
    found = by_name(behaviour([group("a", one, other), group("b", episode(0.0, turn(entropies=())))]))
    assert found["policy/thought_entropy_per_token"].value == pytest.approx((1 + 2 + 4) / 3)
    assert found["policy/answer_entropy_per_token"].value == pytest.approx((0.5 + 0.1 + 0.3) / 3)
    assert found["policy/solved_entropy_per_token"].value == pytest.approx(12.5 / 4)
    assert [found[f"policy/{name}_entropy_per_token"].n for name in ("thought", "answer", "solved")] == [3, 3, 4]
    lost = by_name(behaviour([group("a", other)]))["policy/solved_entropy_per_token"]
    assert (lost.value, lost.why) == (None, "no such token was sampled")


def test_distinct_thoughts_are_counted_within_groups_by_their_ids():
    equal, longer = turn(thought=2), turn(thought=3)
    groups = [
        group("a", episode(1.0, equal), episode(1.0, equal), episode(1.0, longer), episode(1.0, longer)),
        group("b", episode(1.0, equal), episode(1.0, longer)),
        group("c", episode(1.0, equal), episode(1.0, turn(thought=0))),
    ]
    found = by_name(behaviour(groups))["text/distinct_thoughts"]
    assert (found.value, found.n) == (pytest.approx((0.5 + 1.0) / 2), 2)
    alone = by_name(behaviour(groups[2:]))["text/distinct_thoughts"]
    assert (alone.value, alone.why) == (None, "no group has two thoughts")


def test_progress_is_that_of_scored_episodes_and_a_success_got_all_the_way():
    groups = [outcomes("a", 1.0, 0.0, None, progress=[None, 0.5, 0.9]), outcomes("b", 0.0, progress=[0.0])]
    found = by_name(behaviour(groups))["success/progress"]
    assert (found.value, found.n) == (pytest.approx(1.5 / 3), 3)
    silent = by_name(behaviour([outcomes("a", 1.0, 0.0)]))["success/progress"]
    assert (silent.value, silent.why) == (None, "the environment reports no progress")
