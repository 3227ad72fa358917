"""Likely causes: every alarm has some, and what else was raised, and when, says which one leads."""

from heedful.diagnostics.alarms.causes import ALWAYS, CAUSES, LATER, TABLE, likely
from heedful.diagnostics.alarms.logged_rules import logged_rules
from heedful.diagnostics.alarms.rules import AlarmConfig
from heedful.diagnostics.catalogue import entry_of

ALARMS = {rule.name for rule in logged_rules(AlarmConfig())} | {"stalled"}


def names(raised, readings=None):
    return [cause.name for cause in likely(raised, readings)]


def test_every_alarm_has_a_cause_and_no_row_names_what_is_not_there():
    rows = [row for rows in TABLE.values() for row in rows]
    assert TABLE.keys() == ALARMS
    assert {row.cause for row in rows} == CAUSES.keys()
    assert {name for row in rows for name in row.after} <= ALARMS
    assert all(entry_of(reading.metric) for row in rows for reading in row.readings)


def test_an_alarm_alone_has_causes_that_say_what_to_log():
    for alarm in ALARMS:
        found = likely({alarm: 3})
        assert found
        assert all(cause.look and not cause.shown for cause in found)
    assert likely({"success_drop": 3})[0].sentence() == (
        "success_drop: the learning rate is too high (to know more: learning rate, gradient norm, KL, entropy, and the "
        "divergence of sampler and learner). Try: halve it, and go back to a checkpoint before the first alarm."
    )


def test_the_alarm_that_came_first_leads():
    assert names({"rate_jump": 50, "gradient_spike": 50, "kl_runaway": 60})[0] == "schedule"
    assert names({"sampler_mismatch": 40, "rate_jump": 50})[:2] == ["sampler", "schedule"]
    assert names({"sampler_mismatch": 50, "rate_jump": 40})[:2] == ["schedule", "sampler"]


def test_a_fall_of_success_is_laid_to_an_alarm_soon_after_it_and_not_to_a_late_one():
    first = likely({"success_drop": 50, "truncation": 58})[0]
    assert (first.name, first.alarm) == ("limit", "truncation")
    assert names({"success_drop": 50, "truncation": 90})[0] == "rate"


def test_a_notice_leads_only_where_nothing_worse_was_raised():
    notices = {rule.name for rule in logged_rules(AlarmConfig()) if rule.severity == "notice"}
    assert notices == {name for name, later in LATER.items() if later == ALWAYS}
    assert names({"gradient_spike": 12})[0] == "batch"
    assert names({"gradient_spike": 12, "entropy_rise": 90})[0] == "bonus"


def test_another_alarm_tells_a_cause_apart():
    assert likely({"starvation": 30})[0].name == "hard"
    first = likely({"starvation": 30, "format_collapse": 35})[0]
    assert (first.name, first.shown) == ("parser", "format_collapse at step 35")


def test_what_an_earlier_alarm_explains_has_no_cause_of_its_own_before_the_others():
    assert names({"gradient_spike": 50, "kl_runaway": 70})[:2] == ["rate", "kl_low"]
    assert names({"rate_jump": 50, "gradient_spike": 50, "truncation": 70})[:2] == ["schedule", "limit"]


def test_a_reading_tells_a_cause_apart_or_speaks_against_it():
    low, high = {"format/closed_rate": 0.1}, {"format/closed_rate": 0.9}
    assert likely({"starvation": 30}, low)[0].shown == "format/closed_rate is 0.1"
    assert names({"starvation": 30}, low)[0] == "parser"
    assert "parser" in names({"starvation": 30})
    assert "parser" not in names({"starvation": 30}, high)


def test_a_bonus_that_is_zero_is_no_cause_of_a_rise_of_entropy():
    assert "bonus" in names({"entropy_rise": 30})
    assert "bonus" not in names({"entropy_rise": 30}, {"policy/entropy_coefficient": 0.0})


def test_a_run_that_stands_still_is_asked_about_first():
    assert names({"rate_jump": 5, "stalled": 90})[0] == "ended"


def test_a_cause_that_several_alarms_have_is_said_once():
    found = names({"rate_jump": 5, "kl_runaway": 9, "gradient_spike": 7, "success_drop": 8})
    assert len(found) == len(set(found))


def test_a_sampler_that_agrees_with_the_learner_is_no_cause():
    apart = "policy/kl_to_sampler"
    assert names({"entropy_rise": 5})[0] == "bonus"
    assert "sampler" in names({"entropy_rise": 5}), "its evidence may only not have been logged"
    assert "sampler" not in names({"entropy_rise": 5}, {apart: 7e-9})
    assert names({"entropy_rise": 5}, {apart: 0.1})[0] == "sampler"
