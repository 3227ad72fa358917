"""Regimes: the table of labels, its edges, and that a run that starts collapsed is caught."""

import json
from dataclasses import asdict

import numpy as np
from channels import facts_channel, random_scores

from heedful.diagnostics.cross_scores.information import information
from heedful.diagnostics.regimes import RegimeState, label_regime
from heedful.types import Metric

BASELINE = RegimeState((2.0, 2.2, 1.8), (0.8, 0.8, 0.8))
"""Low information begins at 1, low entropy at 0.2."""


def measurement(gap=(2.0, 2.0, 2.0), entropy=(0.8, 0.8, 0.8), p_value=0.001, scope="first_turn"):
    """Each interval as (low, value, high)."""
    return [
        Metric(f"information/{scope}/gap", gap[1], 32, gap[0], gap[2]),
        Metric(f"information/{scope}/entropy_conditional_per_token", entropy[1], 32, entropy[0], entropy[2]),
        Metric(f"retrieval/{scope}/p_value", p_value, 32),
    ]


def label(**readings):
    return label_regime(BASELINE, measurement(**readings), "first_turn")[1].value


HIGH_GAP, LOW_GAP = (1.1, 1.5, 1.9), (0.2, 0.5, 0.9)
HIGH_ENTROPY, LOW_ENTROPY = (0.1, 0.3, 0.5), (0.05, 0.1, 0.19)


def test_the_four_regimes():
    assert label(gap=HIGH_GAP, entropy=HIGH_ENTROPY) == "diverse"
    assert label(gap=LOW_GAP, entropy=HIGH_ENTROPY) == "template"
    assert label(gap=HIGH_GAP, entropy=LOW_ENTROPY) == "compressed"
    assert label(gap=LOW_GAP, entropy=LOW_ENTROPY) == "low-entropy"


def test_an_interval_that_holds_the_edge_is_undecided():
    _, metric = label_regime(BASELINE, measurement(gap=(0.9, 1.0, 1.1)), "first_turn")
    assert metric.value == "undecided"
    assert "first_turn/gap does not settle" in metric.why


def test_chance_retrieval_is_low_information_however_wide_the_gap():
    assert label(gap=HIGH_GAP, p_value=0.06) == "template"
    assert label(gap=HIGH_GAP, p_value=0.05) == "diverse"
    assert label(gap=HIGH_GAP, p_value=None) == "diverse"


def test_there_is_no_regime_before_three_measurements_and_the_baseline_never_moves_afterwards():
    state = None
    for number, gap in enumerate((2.0, 2.2, 1.8), start=1):
        state, metric = label_regime(state, measurement(gap=(gap - 0.1, gap, gap + 0.1)), "first_turn")
        if number < 3:
            assert metric.value is None
            assert metric.why == f"measurement {number} of the 3 that make the baseline"
    assert metric.value == "diverse"
    assert state == BASELINE
    later, metric = label_regime(state, measurement(gap=(0.1, 0.1, 0.1)), "first_turn")
    assert (later, metric.value) == (BASELINE, "template")


def test_a_run_that_starts_collapsed_is_caught_by_the_permutation_test():
    state = None
    for _ in range(3):
        state, metric = label_regime(state, measurement(gap=(-0.01, 0.002, 0.012), p_value=0.4), "first_turn")
    assert metric.value == "template"


def test_a_baseline_without_information_cannot_be_outdone_by_noise():
    state = RegimeState((-0.02, -0.02, -0.02), (0.8, 0.8, 0.8))
    for gap, expected in (((-0.005, 0.0, 0.005), "undecided"), ((0.1, 0.2, 0.3), "diverse")):
        assert label_regime(state, measurement(gap=gap, p_value=None), "first_turn")[1].value == expected


def test_a_measurement_that_failed_has_no_regime_and_does_not_count():
    failed = [Metric(metric.name, None, why="truncated sampling") for metric in measurement()]
    state, metric = label_regime(RegimeState((2.0,), (0.8,)), failed, "first_turn")
    assert state == RegimeState((2.0,), (0.8,))
    assert (metric.value, metric.why) == (None, "truncated sampling")


def test_a_reading_without_an_interval_is_undecided():
    gap = Metric("information/first_turn/gap", 2.0, why="no interval: an interval needs at least 3 prompts")
    _, metric = label_regime(BASELINE, [gap, *measurement()[1:]], "first_turn")
    assert (metric.value, metric.why) == ("undecided", gap.why)


def test_scopes_are_kept_apart():
    metrics = measurement() + measurement(scope="any_turn", gap=LOW_GAP)
    assert label_regime(BASELINE, metrics, "first_turn")[1] == Metric("regime/first_turn", "diverse", 32)
    assert label_regime(BASELINE, metrics, "any_turn")[1] == Metric("regime/any_turn", "template", 32)


def test_the_state_survives_json():
    assert RegimeState.from_json(json.loads(json.dumps(asdict(BASELINE)))) == BASELINE


def test_a_run_of_an_earlier_version_keeps_the_unit_of_its_baseline():
    state = RegimeState.from_json({"gaps": [2.0, 2.2, 1.8], "entropies": [0.8, 0.8, 0.8]})
    metrics = [Metric("information/first_turn/gap_per_token", 0.5, 32, 0.2, 0.9), *measurement(gap=HIGH_GAP)]
    later, metric = label_regime(state, metrics, "first_turn")
    assert (metric.value, later) == ("template", state)
    assert RegimeState.from_json(asdict(later)) == state


def test_filler_is_no_loss_of_information():
    state, rng = None, np.random.default_rng(4)
    for filler in (0, 0, 0, 48):
        scores = facts_channel(rng, filler=filler, variety=0.1, members=8)
        state, metric = label_regime(state, information(scores, "first_turn", rng).metrics, "first_turn")
    assert metric.value == "diverse"


def test_it_reads_what_information_writes():
    state = None
    for seed in range(3):
        metrics = information(random_scores(seed), "any_turn", np.random.default_rng(0)).metrics
        state, metric = label_regime(state, metrics, "any_turn")
    assert metric.name == "regime/any_turn"
    assert metric.value is not None
