"""Alarms on simulated thoughts of known information, which is lost, or whose length alone changes."""

from dataclasses import replace

import numpy as np
import pytest
from channels import facts_channel

from heedful.diagnostics.alarms.recorded import with_information_per_thought
from heedful.diagnostics.alarms.watch import first_raised, replay
from heedful.diagnostics.cross_scores.information import information
from heedful.types import Metric

EVERY, CHANGE, STEPS = 4, 32, 64
SEEDS = range(4)
SCOPE = "information/first_turn"
COLLAPSES = {"template_collapse", "low_entropy_collapse", "noise_collapse"}


def measured(seed, before, after):
    """A run that measures the thoughts of a simulated policy every 4 steps; the policy changes at step 32."""
    rng = np.random.default_rng([21, seed])
    run = []
    for step in range(0, STEPS, EVERY):
        scores = facts_channel(rng, **(before if step < CHANGE else after))
        run.append((step, {each.name: each for each in information(scores, "first_turn", rng).metrics}))
    return run


def raised(before, after):
    """Alarm -> the steps at which it was raised, one per seed where it was."""
    steps = {}
    for seed in SEEDS:
        for name, alarm in first_raised(replay(measured(seed, before, after))).items():
            steps.setdefault(name, []).append(alarm.step)
    return steps


def values(run, name):
    return [next(m.value for m in each.metrics if m.name == f"alarm/{name}") for each in replay(run)]


def why(run, name="template_collapse"):
    """What is said of an alarm at the last measurement."""
    return next(metric.why for metric in replay(run)[-1].metrics if metric.name == f"alarm/{name}")


def test_thoughts_doubled_with_filler_are_no_collapse():
    # 16 facts tell 16 * .8 * log 9 / 2 = 14.06 nats in 16 tokens, and as much in 32.
    assert COLLAPSES.isdisjoint(raised({}, {"filler": 16}))


def test_filler_that_is_left_out_is_no_collapse():
    assert COLLAPSES.isdisjoint(raised({"filler": 16}, {}))


def test_half_of_the_facts_in_half_of_the_tokens_is_a_collapse():
    # 14.06 nats become 7.03; .88 nats per token before and after.
    found = raised({}, {"facts": 8})
    assert len(found["template_collapse"]) == len(SEEDS)
    assert min(found["template_collapse"]) >= CHANGE
    assert max(found["template_collapse"]) <= CHANGE + 2 * EVERY


def test_less_information_in_equally_long_thoughts_is_a_collapse():
    found = raised({}, {"templates": 0.6})
    assert len(found["template_collapse"]) == len(SEEDS)
    assert min(found["template_collapse"]) >= CHANGE
    assert max(found["template_collapse"]) <= CHANGE + 2 * EVERY


def test_less_information_in_longer_thoughts_is_a_collapse():
    found = raised({}, {"templates": 0.6, "filler": 16})
    assert len(found["template_collapse"]) == len(SEEDS)


def test_half_of_the_facts_in_thoughts_of_any_length_is_a_collapse_of_the_same_size():
    """What decides does not know the length: 8 facts with as much filler as keeps 16 tokens, or with none."""
    shorter, padded = raised({}, {"facts": 8}), raised({}, {"facts": 8, "filler": 8})
    assert len(shorter["template_collapse"]) == len(padded["template_collapse"]) == len(SEEDS)


def test_noise_is_a_collapse_of_noise_only_where_information_is_lost():
    # Facts that are wrong half as often as by chance: H goes from .33 to .59 nats a token, 14.06 nats to 3.47.
    found = raised({}, {"flip": 0.3})
    assert len(found["noise_collapse"]) == len(SEEDS)
    # Each fact is less sure, and twice as many tell as much: 32 * (1 - 2 f) log((1 - f) / f) / 2 = 14.06 at f = .1886.
    assert "noise_collapse" not in raised({}, {"facts": 32, "flip": 0.1886})


def test_without_any_change_no_collapse_is_raised():
    assert COLLAPSES.isdisjoint(raised({}, {}))


def test_a_collapse_says_what_the_information_per_token_alone_would_have_said():
    words = why(measured(0, {}, {"facts": 8}))
    assert words.startswith("information/first_turn/gap fell from 14")
    assert "; gap_per_token alone has not fallen (0.8" in words
    assert words.endswith("; thought_tokens (16, then 8)")
    both = why(measured(0, {}, {"templates": 0.6}))
    assert "; gap_per_token fell as well (0.8" in both
    assert both.endswith("; thought_tokens (16, then 16)")


def test_a_mere_change_of_length_is_said_where_no_collapse_is_raised():
    run = measured(0, {}, {"filler": 16})
    assert values(run, "template_collapse")[-1] == 0.0
    words = why(run)
    assert words.startswith("information/first_turn/gap_per_token fell from 0.8")
    assert "; gap has not fallen (14" in words
    assert words.endswith("; thought_tokens (16, then 32): a change of the length alone")
    assert why(measured(0, {}, {})) == ""


@pytest.mark.proof
@pytest.mark.parametrize(
    ("before", "after", "collapses"),
    [
        ({}, {}, False),
        ({}, {"filler": 16}, False),
        ({"filler": 16}, {}, False),
        ({}, {"facts": 8}, True),
        ({}, {"facts": 8, "filler": 8}, True),
        ({}, {"facts": 8, "filler": 24}, True),
    ],
    ids=["nothing", "longer", "shorter", "half of it in half", "half of it in as much", "half of it in twice as much"],
)
def test_200_runs_whose_thoughts_change_their_information_or_their_length(before, after, collapses, record_property):
    record_property("cases", 200)
    found = [first_raised(replay(measured(seed, before, after))) for seed in range(200)]
    assert sum(bool(COLLAPSES & alarms.keys()) for alarms in found) == (200 if collapses else 0)
    assert all("template_collapse" in alarms for alarms in found) is collapses


# Recordings of earlier versions ---------------------------------------------------------------------------------------


def recorded_before(run):
    """The same measurements as an earlier version wrote them."""
    old = []
    for step, metrics in run:
        tokens = metrics[f"{SCOPE}/thought_tokens"]
        kept = {name: each for name, each in metrics.items() if name not in (f"{SCOPE}/gap", tokens.name)}
        old.append((step, {**kept, "length/reasoning_tokens": replace(tokens, name="length/reasoning_tokens")}))
    return old


def test_recordings_of_earlier_versions_are_judged_by_gap_per_token_times_length():
    for after, collapsed in (({"facts": 8}, True), ({"filler": 16}, False)):
        run = measured(1, {}, after)
        assert ("template_collapse" in first_raised(replay(run))) is collapsed
        assert ("template_collapse" in first_raised(replay(recorded_before(run)))) is collapsed


def test_the_estimate_is_the_product_and_adds_relative_errors():
    per_token = Metric(f"{SCOPE}/gap_per_token", 2.0, 32, 1.7, 2.3)
    length = Metric("length/reasoning_tokens", 10.0, 128, 8.0, 12.0)
    found = {
        each.name: each for each in with_information_per_thought({each.name: each for each in (per_token, length)})
    }
    gap = found[f"{SCOPE}/gap"]
    # .3 * 10 and 2 * 2 are the half widths: sqrt(9 + 16) = 5.
    assert (gap.value, gap.low, gap.high, gap.n) == (20.0, 15.0, 25.0, 32)
    assert "estimated" in gap.why
    assert found[f"{SCOPE}/thought_tokens"].value == 10.0


def test_nothing_is_estimated_where_the_gap_was_recorded_or_its_length_is_not_known():
    run = measured(0, {}, {})[0][1]
    assert with_information_per_thought(run) == list(run.values())
    mixed = {
        "length/reasoning_tokens": Metric("length/reasoning_tokens", 10.0),
        "information/first_turn/echo/gap_per_token": Metric("information/first_turn/echo/gap_per_token", 2.0),
    }
    assert with_information_per_thought(mixed) == list(mixed.values())
    missing = Metric(f"{SCOPE}/gap_per_token", None, why="truncated sampling")
    found = with_information_per_thought({missing.name: missing, **mixed})
    assert [(each.name, each.why) for each in found if each.name == f"{SCOPE}/gap"] == [
        (f"{SCOPE}/gap", "truncated sampling")
    ]
