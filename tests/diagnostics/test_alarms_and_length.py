"""Alarms on simulated thoughts of known information, which is lost, or whose length alone changes."""

import numpy as np
from channels import facts_channel

from heedful.diagnostics.alarms.watch import first_raised, replay
from heedful.diagnostics.cross_scores.information import information

EVERY, CHANGE, STEPS = 4, 32, 64
SEEDS = range(10)
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


def test_thoughts_doubled_with_filler_are_no_collapse():
    # 16 facts tell 16 * .8 * log 9 / 2 = 14.06 nats in 16 tokens, and as much in 32.
    assert COLLAPSES.isdisjoint(raised({}, {"filler": 16}))


def test_half_of_the_facts_in_half_of_the_tokens_is_a_collapse():
    # 14.06 nats become 7.03; .88 nats per token before and after.
    found = raised({}, {"facts": 8})
    assert len(found["template_collapse"]) == len(SEEDS)
    assert min(found["template_collapse"]) >= CHANGE
    assert max(found["template_collapse"]) <= CHANGE + 2 * EVERY
