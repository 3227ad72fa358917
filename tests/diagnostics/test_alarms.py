"""Alarms: what raises each of them, what does not, when they end, and how often they are wrong."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from runs_without_drift import LEVELS, correlated, series

from heedful.diagnostics.alarms.conditions import Beyond, Change, Rule
from heedful.diagnostics.alarms.rules import AlarmConfig, standard_rules
from heedful.diagnostics.alarms.watch import Alarms, first_raised, replay, stands_for
from heedful.diagnostics.statistics.change_point import Design
from heedful.types import Metric

P_VALUE = "retrieval/first_turn/p_value"
GAP = "information/first_turn/gap"


def moving(**to):
    """From step 20 on these levels, on the way there for `ramp` steps."""
    ramp = to.pop("ramp", 0)

    def at(step):
        share = 0.0 if step < 20 else min(1.0, (step - 19) / (ramp + 1))
        return {name: LEVELS[name] + share * (level - LEVELS[name]) for name, level in to.items()}

    return at


def raised(at=None, seed=0, steps=60):
    return first_raised(replay(series(np.random.default_rng(seed), steps, at)))


def one(name, value, error=0.01):
    return Metric(name, value, 16, value - 1.96 * error, value + 1.96 * error)


def values(observations, name):
    return [next(m.value for m in each.metrics if m.name == f"alarm/{name}") for each in observations]


COLLAPSES = {"template_collapse", "low_entropy_collapse", "noise_collapse", "format_collapse"}


def test_the_collapses_are_those_that_stop_a_run():
    rules = standard_rules(AlarmConfig())
    assert {rule.name for rule in rules if rule.collapse} == COLLAPSES
    assert len({rule.name for rule in rules}) == len(rules)


# What raises each of them ---------------------------------------------------------------------------------------------

PLANTED = {
    "template_collapse": {"gap": 1.2, "success": 0.45},
    "low_entropy_collapse": {"gap": 1.2, "entropy": 0.05},
    "noise_collapse": {"entropy": 0.5, "success": 0.25},
    "format_collapse": {"valid": 0.75},
    "entropy_gaming": {"entropy": 0.4, "strategies": 0.6},
    "entropy_rise": {"entropy": 0.36},
    "thought_bypassed": {"influence": 0.2},
    "oscillation": {"oscillation": 0.45},
    "success_drop": {"success": 0.2},
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_is_found_within_twelve_steps_and_not_before(name):
    alarm = raised(moving(**PLANTED[name]), steps=40).get(name)
    assert alarm is not None
    assert 20 <= alarm.step <= 32


def test_a_slow_decline_is_found_on_the_way_down():
    found = [raised(moving(success=0.1, ramp=30), seed)["success_drop"] for seed in range(4)]
    assert all(20 <= alarm.step <= 50 for alarm in found)


def test_the_names_tell_the_collapses_apart():
    template, low = raised(moving(gap=1.2)), raised(moving(gap=1.2, entropy=0.05))
    noise = raised(moving(entropy=0.5, success=0.25))
    assert COLLAPSES & template.keys() == {"template_collapse"}
    assert "template_collapse" not in low or low["template_collapse"].step <= low["low_entropy_collapse"].step
    assert COLLAPSES & noise.keys() == {"noise_collapse"}


def test_healthy_sharpening_raises_nothing():
    for seed in range(4):
        assert raised(moving(success=0.9, entropy=0.05, gap=3.2, strategies=0.5, ramp=20), seed) == {}


def test_the_evidence_is_said_in_words_and_numbers():
    alarm = raised(moving(success=0.2))["success_drop"]
    assert alarm.evidence.startswith("success/rate fell from 0.")
    assert " since step 2" in alarm.evidence
    assert "standard errors; " in alarm.evidence
    assert alarm.evidence.endswith(f"at step {alarm.step}")
    assert alarm.sentence() == f"Alarm success_drop at step {alarm.step}: {alarm.evidence}. {alarm.advice}"


# Limits and definitions -----------------------------------------------------------------------------------------------


def p_values(*found):
    return replay([(step, {P_VALUE: Metric(P_VALUE, p)}) for step, p in enumerate(found)])


def test_thoughts_that_cannot_be_told_apart_are_blind_and_a_collapse_only_if_they_once_could():
    never = p_values(0.5, 0.4, 0.3)
    assert values(never, "input_blind") == [None, 1.0, 1.0]
    assert values(never, "template_collapse") == [None, 0.0, 0.0]
    lost = p_values(0.01, 0.01, 0.4, 0.01, 0.4, 0.3, 0.01, 0.3, 0.01, 0.02)
    assert values(lost, "template_collapse") == [None, 0, 0, 0, 0, 1, 1, 1, 1, 0], "two in a row, to begin and to end"
    assert "is above 0.05 since step 4" in lost[7].metrics[0].why


def share(name, count, n=16):
    return Metric(name, count / n, n)


def test_starvation_is_five_steps_in_a_row_with_next_to_nothing_kept_unless_all_is_solved():
    def run(kept, solved):
        named = ("filter/kept_ratio", "signal/solved")
        return [
            (step, {name: share(name, count) for name, count in zip(named, each, strict=True)})
            for step, each in enumerate(zip(kept, solved, strict=True))
        ]

    failing = replay(run([3, 1, 1, 0, 1, 1, 0, 8, 8, 8, 8, 8], [0] * 12))
    assert values(failing, "starvation") == [None, None, None, None, 0, 1, 1, 1, 1, 1, 1, 0]
    assert [alarm.name for each in failing for alarm in each.raised] == ["starvation"]
    solved = replay(run([1] * 8, [15] * 8))
    assert values(solved, "starvation")[4:] == [0, 0, 0, 0]


def test_without_a_filter_groups_that_do_not_differ_starve_a_run():
    observed = replay([(step, {"signal/mixed": share("signal/mixed", 1)}) for step in range(5)])
    assert values(observed, "starvation") == [None] * 4 + [1.0]


def test_blind_prompts_are_counted_until_their_share_is_beyond_doubt():
    few = replay([(step, {"signal/unpaid": share("signal/unpaid", 2)}) for step in range(20)])
    many = replay([(step, {"signal/unpaid": share("signal/unpaid", 6)}) for step in range(20)])
    # 6 of 16 in 5 steps: 30 of 80, (.375 - .1) / sqrt(.09 / 80) = 8.2 standard errors.
    assert values(few, "reward_blind") == [None] * 4 + [0.0] * 16
    assert values(many, "reward_blind") == [None] * 4 + [1.0] * 16
    why = next(metric.why for metric in many[4].metrics if metric.value)
    assert why == "signal/unpaid was 0.375 of 80 in steps 0 to 4, 8.2 standard errors above 0.1"


def test_before_its_baseline_an_alarm_is_null_and_says_how_far_it_is():
    run = series(np.random.default_rng(0), 12)
    observed = replay(run)
    success = [next(m for m in each.metrics if m.name == "alarm/success_drop") for each in observed]
    assert [metric.value for metric in success] == [None] * 6 + [0.0] * 6
    assert success[2].why.startswith("3 of the first 7 readings of success/rate; ")
    nothing = Alarms().observe(0, [])
    assert {metric.value for metric in nothing.metrics} == {None}
    assert "signal/unpaid was not recorded" in [metric.why for metric in nothing.metrics]


def test_a_reading_that_is_always_missing_leaves_its_reason():
    why = "the environment reports no progress"
    seen = replay([(step, {"signal/unpaid": Metric("signal/unpaid", None, 16, why=why)}) for step in range(9)])[-1]
    assert next(m.why for m in seen.metrics if m.name == "alarm/reward_blind").endswith(f"({why})")


# How long they last ---------------------------------------------------------------------------------------------------


def test_an_alarm_is_raised_once_and_ends_when_the_level_is_back():
    levels = [0.8] * 10 + [0.4] * 10 + [0.8] * 10
    observed = replay([(step, {"success/rate": one("success/rate", level)}) for step, level in enumerate(levels)])
    told = values(observed, "success_drop")
    assert told[:6] == [None] * 6
    assert told[6:11] == [0.0] * 5
    assert told[11:24] == [1.0] * 13, "two readings to begin, five to end"
    assert told[24:] == [0.0] * 6
    assert [alarm.step for each in observed for alarm in each.raised] == [11]


def test_a_level_that_is_lost_for_good_is_not_forgotten_when_it_leaves_the_window():
    config = AlarmConfig(window=16)
    levels = [0.8] * 10 + [0.4] * 60
    run = [(step, {"success/rate": one("success/rate", level)}) for step, level in enumerate(levels)]
    assert values(replay(run, config), "success_drop")[-1] == 1.0


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (GAP, True),
        ("information/first_turn/sokoban/gap", True),
        ("information@judge/first_turn/gap", True),
        ("information/first_turn_closed/gap", False),
        ("information/any_turn/gap", False),
        ("retrieval/first_turn/gap", False),
    ],
)
def test_a_metric_stands_for_that_of_one_environment_and_of_another_scorer(name, expected):
    assert stands_for(GAP, name) is expected


def test_one_environment_of_a_mixed_batch_is_enough_and_a_judge_only_counts_where_the_policy_did_not_score():
    def run(falling):
        names = falling, "information/first_turn/echo/gap"
        return [
            (step, {name: one(name, 1.0 if name == falling and step > 5 else 2.0) for name in names})
            for step in range(9)
        ]

    mixed = replay(run("information/first_turn/sokoban/gap"))
    assert values(mixed, "template_collapse")[-1] == 1.0
    judged = replay(run("information@judge/first_turn/gap"))
    assert values(judged, "template_collapse")[-1] == 0.0
    alone = "information@judge/first_turn/gap"
    only = replay([(step, {alone: one(alone, 1.0 if step > 5 else 2.0)}) for step in range(9)])
    assert values(only, "template_collapse")[-1] == 1.0


# State and replay -----------------------------------------------------------------------------------------------------


def test_a_resumed_run_raises_what_the_uninterrupted_one_does():
    run = series(np.random.default_rng(3), 50, moving(entropy=0.5, success=0.25, valid=0.8))
    whole = replay(run)
    for cut in (3, 21, 30):
        first, second = Alarms(), Alarms()
        for step, metrics in run[:cut]:
            first.observe(step, list(metrics.values()))
        second.load_state(json.loads(json.dumps(first.state())))
        rest = [second.observe(step, list(metrics.values())) for step, metrics in run[cut:]]
        assert rest == whole[cut:]


def test_a_fork_reports_an_alarm_again_that_still_stands_and_knows_the_level_before():
    alarms = Alarms(rules=(Rule("fall", ((Change("m", Design("down", 0.2, True, 4.0, 3, 1, 0.0)),),)),))
    values = [1.0, 1.01, 0.99, 1.0, 0.2, 0.2, 0.2]
    raised = [
        alarms.observe(step, [Metric("m", value, 100, value - 0.02, value + 0.02)]).raised
        for step, value in enumerate(values)
    ]
    assert sum(map(len, raised)) == 1
    alarms.forget_raised()
    again = alarms.observe(7, [Metric("m", 0.2, 100, 0.18, 0.22)]).raised
    assert [(alarm.name, alarm.step) for alarm in again] == [("fall", 7)]
    assert "from 1 (steps 0 to" in again[0].evidence


def test_a_run_can_be_replayed_with_other_thresholds_and_other_rules():
    run = series(np.random.default_rng(0), 40, moving(success=0.15))
    assert "success_drop" in first_raised(replay(run))
    assert "success_drop" not in first_raised(replay(run, AlarmConfig(threshold=50.0)))
    design = Design("down", 0.05, False, 3.0, 5, 2, 0.0)
    rule = Rule("own", ((Change("success/rate", design),),), unless=(Beyond("success/rate", 0.9, True, 2),))
    found = first_raised(replay(run, rules=[rule]))
    assert found.keys() == {"own"}
    assert found["own"].step <= first_raised(replay(run))["success_drop"].step


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"window": 6}, "window must hold a baseline and a change, found 6"),
    ],
)
def test_knobs_that_make_no_test_are_refused(knobs, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(AlarmConfig(), **knobs)


# How often they are wrong ---------------------------------------------------------------------------------------------


def false_alarms(runs, make):
    found = Counter()
    for number in range(runs):
        alarms = first_raised(replay(make(np.random.default_rng([11, number]))))
        found.update(["any"] if alarms else [])
    return found["any"]


def test_runs_without_drift_raise_nothing():
    assert false_alarms(3, lambda rng: series(rng, 60)) == 0
    assert false_alarms(6, lambda rng: correlated(rng, 0.25, 60)) == 0


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["independent", "correlated"])
def test_at_most_1_percent_of_runs_of_100_steps_without_drift_raise_any_alarm(kind, record_property):
    runs = 300
    record_property("cases", runs)
    wrong = false_alarms(runs, series if kind == "independent" else lambda rng: correlated(rng, 0.25))
    assert wrong <= runs // 100


@pytest.mark.proof
def test_at_most_10_percent_of_runs_of_100_steps_without_drift_raise_any_alarm_at_twice_the_correlation(
    record_property,
):
    """More than the configuration allows: `docs/diagnostics.md` says how many."""
    runs = 400
    record_property("cases", runs)
    wrong = false_alarms(runs, lambda rng: correlated(rng, 0.5))
    record_property("false_alarms", wrong)
    assert wrong <= runs // 10
