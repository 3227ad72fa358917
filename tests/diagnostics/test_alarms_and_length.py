"""Alarms on simulated thoughts of known information, which is lost, or whose length alone changes."""

import numpy as np
import pytest
from channels import facts_channel

from heedful.diagnostics.alarms.watch import first_raised, replay
from heedful.diagnostics.cross_scores.information import information

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
