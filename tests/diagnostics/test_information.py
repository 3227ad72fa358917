"""Information from cross-scores: hand-computed matrices, identities, jackknife against brute force, coverage."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from channels import balanced, by_name, cross_scores, delete_prompt, gaussian_channel, permute, random_scores

from heedful.diagnostics.cross_scores import mixture
from heedful.diagnostics.cross_scores.information import ZScoreState, information
from heedful.diagnostics.cross_scores.score_matrix import score_matrix, select_rows
from heedful.diagnostics.statistics.intervals import jackknife_interval, rate_interval
from heedful.types import CrossScores

LOG = math.log


def measure(scores, state=None, seed=0, **options):
    return information(scores, "first_turn", np.random.default_rng(seed), state, **options)


def values(scores, state=None):
    return by_name(measure(scores, state).metrics)


def test_a_masked_score_is_a_missing_one():
    scores = np.array([[-1.0, -2.0], [-3.0, -1.0]])
    masked = np.ma.masked_array(scores, mask=[[False, True], [False, False]])
    missing = np.where(masked.mask, np.nan, scores)
    assert score_matrix(cross_scores(scores, [0, 1])).scores_MN[0, 1] == -2.0
    for given in (masked, missing):
        assert np.isnan(score_matrix(cross_scores(given, [0, 1])).scores_MN[0, 1])
    assert values(cross_scores(masked, [0, 1]))["mi"] == values(cross_scores(missing, [0, 1]))["mi"]


# Two prompts, one thought each: p(z_0 | x) = 1/2, 1/4 and p(z_1 | x) = 1/8, 1/8.
TWO = cross_scores([[LOG(1 / 2), LOG(1 / 4)], [LOG(1 / 8), LOG(1 / 8)]], [0, 1], [2, 4])


def test_two_prompts_by_hand():
    found = values(TWO)
    # Mixtures 3/8 and 1/8: gains log(4/3) and 0.
    assert found["mi"].value == pytest.approx(LOG(4 / 3) / 2)
    assert found["mi_per_token"].value == pytest.approx(LOG(4 / 3) / 2 / 2)
    assert found["mi_loo"].value == pytest.approx(LOG(2) / 2)
    assert found["mi_ceiling"].value == pytest.approx(LOG(2))
    assert found["mi_saturated"].value == 0.0
    assert found["gap"].value == pytest.approx(LOG(2) / 2)
    assert found["gap_per_token"].value == pytest.approx(LOG(2) / 2 / 2)
    assert found["thought_tokens"].value == 3.0
    assert found["entropy_conditional"].value == pytest.approx((LOG(2) + LOG(8)) / 2)
    assert found["entropy_conditional_per_token"].value == pytest.approx((LOG(2) / 2 + LOG(8) / 4) / 2)
    assert found["entropy_marginal"].value == pytest.approx((LOG(8 / 3) + LOG(8)) / 2)
    assert found["entropy_marginal_per_token"].value == pytest.approx((LOG(8 / 3) / 2 + LOG(8) / 4) / 2)


def test_tempered_and_z_scores_of_two_prompts_by_hand():
    found = values(TWO)
    # Per-token probabilities of z_0: 2^-1/2, 2^-1; of z_1: 8^-1/4 under both.
    tempered = LOG(2**-0.5) - LOG((2**-0.5 + 0.5) / 2)
    assert found["mi_tempered"].value == pytest.approx(tempered / 2)
    # Of two numbers the population deviation is half their distance.
    spread = abs(LOG(3 / 8) / 2 - LOG(1 / 8) / 4) / 2
    assert found["zscore"].value == pytest.approx(LOG(4 / 3) / 4 / (spread + 1e-3))
    spread_tempered = abs(LOG((2**-0.5 + 0.5) / 2) - LOG(1 / 8) / 4) / 2
    assert found["zscore_tempered"].value == pytest.approx(tempered / 2 / (spread_tempered + 1e-3))
    assert found["zscore_ema"].value == found["zscore"].value


def test_three_prompts_of_unequal_shares_by_hand():
    # Shares 1/2, 1/4, 1/4; probabilities with short mixtures.
    scores = np.log([[0.4, 0.2, 0.2], [0.1, 0.1, 0.1], [0.2, 0.8, 0.4], [0.1, 0.1, 0.5]])
    found = values(cross_scores(scores, [0, 0, 1, 2], [1, 2, 4, 5]))
    mixtures = [0.3, 0.1, 0.4, 0.2]
    matched = [0.4, 0.1, 0.8, 0.5]
    gains = [LOG(own / mixed) for own, mixed in zip(matched, mixtures, strict=True)]
    assert found["mi"].value == pytest.approx(sum(gains) / 4)
    assert found["mi_per_token"].value == pytest.approx((gains[0] + gains[1] / 2 + gains[2] / 4 + gains[3] / 5) / 4)
    assert found["mi_ceiling"].value == pytest.approx(1.5 * LOG(2))
    # Left-out mixtures: .2, .1, (.2 + .4 / 2) / 1.5 = 4/15, .1.
    assert found["mi_loo"].value == pytest.approx((LOG(2) + 0 + LOG(0.8 * 15 / 4) + LOG(5)) / 4)
    rivals = LOG(0.2) * 2 / 3 + LOG(0.4) / 3
    gaps = [LOG(2), 0, (LOG(0.8) - rivals) / 4, LOG(5) / 5]
    assert found["gap_per_token"].value == pytest.approx(sum(gaps) / 4)
    whole = [LOG(2), 0, LOG(0.8) - rivals, LOG(5)]
    assert found["gap"].value == pytest.approx(sum(whole) / 4)
    assert found["thought_tokens"].value == 3.0


def test_the_identity_of_entropies_holds_row_by_row():
    matrix = score_matrix(random_scores(1))
    mixed = mixture.mixture(matrix, matrix.scores_MN)
    assert -mixed.marginal_M == pytest.approx(mixed.gain_M + -mixed.matched_M, rel=1e-14)
    found = values(random_scores(1))
    for unit, mi in (("", "mi"), ("_per_token", "mi_per_token")):
        conditional, marginal = found[f"entropy_conditional{unit}"].value, found[f"entropy_marginal{unit}"].value
        assert marginal == pytest.approx(found[mi].value + conditional, rel=1e-14)


def test_the_left_out_column_of_the_own_prompt_is_the_leave_one_out_mixture():
    matrix = score_matrix(random_scores(2))
    mixed = mixture.mixture(matrix, matrix.scores_MN)
    for row, own in enumerate(matrix.own_M):
        others = [column for column in range(matrix.prompts) if column != own]
        weights = matrix.counts_N[others] / matrix.counts_N[others].sum()
        expected = np.log(np.sum(np.exp(matrix.scores_MN[row, others]) * weights))
        assert mixed.without_MN[row, own] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_no_row_gains_more_than_its_prompt_is_rare_so_mi_stays_below_the_ceiling(seed):
    scores = random_scores(seed)
    matrix = score_matrix(CrossScores(np.asarray(scores.scores_MN) * 10, scores.lengths_M, scores.own_M))
    mixed = mixture.mixture(matrix, matrix.scores_MN)
    assert np.all(mixed.gain_M <= -np.log(matrix.shares_N[matrix.own_M]) + 1e-12)
    found = values(scores)
    assert found["mi"].value <= found["mi_ceiling"].value
    assert found["mi"].high is None or found["mi"].high <= found["mi_ceiling"].value


def test_perfectly_diagonal_scores_saturate_without_an_interval():
    own = balanced(4, 2)
    scores = np.where(np.arange(4) == np.array(own)[:, None], -5.0, -500.0)
    found = values(cross_scores(scores, own, heads={16: scores}))
    assert found["mi"].value == pytest.approx(LOG(4), rel=1e-12)
    assert found["mi_saturated"].value == 1.0
    assert found["gap_per_token"].value == pytest.approx(495.0)
    assert found["gap_per_token"].low is not None, "the gap is the one to watch while the mi is saturated"
    for name in ("mi", "mi_per_token", "mi_tempered", "mi_head_16", "zscore"):
        assert (found[name].low, found[name].high) == (None, None)
        assert "saturated" in found[name].why


def test_all_thoughts_retrieved_are_as_many_successes_as_there_are_prompts():
    own = balanced(4, 2)
    found = values(cross_scores(np.where(np.arange(4) == np.array(own)[:, None], -5.0, -500.0), own))
    # Wilson's limit of 4 of 4, with Student's t at 3 degrees of freedom: 4 / (4 + 3.182446^2).
    for name in ("accuracy", "accuracy_2way"):
        assert (found[name].value, found[name].high) == (1.0, 1.0)
        assert found[name].low == pytest.approx(4 / (4 + 3.182446**2), abs=1e-6)


def test_saturation_begins_at_95_percent_of_the_ceiling():
    def diagonal(lead):
        return values(cross_scores(np.eye(6) * lead, list(range(6))))

    ratios = {lead: diagonal(lead)["mi"].value / LOG(6) for lead in (3.0, 4.0, 5.0, 6.0)}
    assert min(ratios.values()) < 0.95 < max(ratios.values())
    assert {lead: diagonal(lead)["mi_saturated"].value for lead in ratios} == {
        lead: float(ratio >= 0.95) for lead, ratio in ratios.items()
    }


def test_a_fully_collapsed_model_has_no_information():
    own = balanced(7, 2)
    rows = np.random.default_rng(0).normal(-30, 3, size=(14, 1))
    found = values(cross_scores(np.repeat(rows, 7, axis=1), own, [9] * 14))
    for name in ("mi", "mi_loo", "mi_per_token", "mi_tempered", "gap", "gap_per_token", "zscore"):
        assert found[name].value == pytest.approx(0.0, abs=1e-12)
        assert found[name].high == pytest.approx(0.0, abs=1e-9)
    assert found["accuracy"].value == pytest.approx(1 / 7)
    assert found["accuracy_2way"].value == pytest.approx(1 / 2)
    assert found["p_value"].value == 1.0
    assert found["mi_saturated"].value == 0.0


def test_unbalanced_groups_cap_the_information_at_the_entropy_of_their_shares():
    own = [0] * 5 + [1] * 2 + [2]
    scores = np.where(np.arange(3) == np.array(own)[:, None], 0.0, -800.0)
    found = values(cross_scores(scores, own))
    entropy = -sum(share * LOG(share) for share in (5 / 8, 2 / 8, 1 / 8))
    assert found["mi_ceiling"].value == pytest.approx(entropy)
    assert found["mi"].value == pytest.approx(entropy)
    assert found["mi"].value < LOG(3)


def test_unique_columns_with_shares_equal_duplicated_columns():
    scores = random_scores(3)
    found = values(scores)
    copies_MM = np.asarray(scores.scores_MN)[:, list(scores.own_M)]
    marginal_M = np.log(np.mean(np.exp(copies_MM), axis=1))
    matched_M = np.diag(copies_MM)
    assert found["mi"].value == pytest.approx(float(np.mean(matched_M - marginal_M)), rel=1e-12)


def test_scores_far_below_the_smallest_double_lose_nothing():
    scores = random_scores(4)
    shifted = CrossScores(np.asarray(scores.scores_MN) - 1e5, scores.lengths_M, scores.own_M)
    here, there = values(scores), values(shifted)
    for name in ("mi", "mi_loo", "gap_per_token", "accuracy_2way"):
        assert there[name].value == pytest.approx(here[name].value, rel=1e-9)
        assert there[name].low == pytest.approx(here[name].low, rel=1e-6)


def test_heads_are_measured_like_whole_thoughts_and_say_how_many_thoughts_reach_them():
    scores = random_scores(5)
    found = values(scores)
    head = values(CrossScores(scores.heads[16], scores.lengths_M, scores.own_M))
    assert found["mi_head_16"].value == pytest.approx(head["mi"].value)
    assert found["mi_head_16"].low == pytest.approx(head["mi"].low)
    assert found["n_reaching_16"].value == sum(length >= 16 for length in scores.lengths_M)
    without = values(random_scores(5, heads=False))
    assert without["mi_head_16"].value is None
    assert "no scores of heads" in without["mi_head_16"].why
    assert without["n_reaching_16"] == found["n_reaching_16"]


JACKKNIFED = (
    *("mi", "mi_loo", "mi_per_token", "mi_tempered", "gap", "gap_per_token", "mi_head_16", "mi_head_32"),
    *(
        "thought_tokens",
        "zscore",
        "zscore_ema",
        "zscore_tempered",
        "zscore_ema_tempered",
        "entropy_conditional",
        "entropy_marginal",
    ),
    *("entropy_conditional_per_token", "entropy_marginal_per_token", "accuracy", "accuracy@2", "accuracy@4"),
    "accuracy_2way",
)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_every_interval_equals_the_one_recomputed_without_each_prompt_in_turn(seed, noise):
    scores = random_scores(seed)
    scores = CrossScores(scores.scores_MN, scores.lengths_M, scores.own_M, scores.heads, noise)
    state = ZScoreState(0.4, 0.3)
    found = values(scores, state)
    deleted = [values(delete_prompt(scores, prompt), state) for prompt in range(6)]
    for name in JACKKNIFED:
        values_without = np.array([without[name].value for without in deleted])
        low, high = jackknife_interval(found[name].value, values_without)
        if name.startswith("accuracy"):
            low, high = rate_interval(found[name].value, values_without, len(scores.own_M))
        if name in ("mi", "mi_tempered", "mi_head_16", "mi_head_32"):
            high = min(high, found["mi_ceiling"].value)
        assert (found[name].low, found[name].high) == pytest.approx((low, high), rel=1e-9, abs=1e-12), name


def test_every_eight_way_interval_equals_the_one_recomputed_without_each_prompt_in_turn():
    scores = random_scores(6, counts=(1, 2, 1, 3, 1, 2, 1, 1, 2, 1), lead=-1.0)
    found = values(scores)
    deleted = [values(delete_prompt(scores, prompt)) for prompt in range(10)]
    for name in ("accuracy_8way", "accuracy@8"):
        limits = rate_interval(found[name].value, np.array([without[name].value for without in deleted]), 15)
        assert (found[name].low, found[name].high) == pytest.approx(tuple(limits))


def test_the_order_of_thoughts_and_prompts_does_not_matter():
    scores, rng = random_scores(7), np.random.default_rng(0)
    permuted = permute(scores, rng.permutation(13), rng.permutation(6))
    for name, metric in values(scores).items():
        other = values(permuted)[name]
        expected = [number for number in (metric.value, metric.low, metric.high) if number is not None]
        assert [other.value, other.low, other.high][: len(expected)] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_two_prompts_have_values_but_no_intervals_and_one_prompt_has_entropies_only():
    found = values(TWO)
    assert all(metric.low is None for metric in found.values())
    assert found["gap_per_token"].why == "no interval: an interval needs at least 3 prompts"
    one = values(cross_scores([[-3.0], [-5.0]], [0, 0], [2, 4]))
    assert one["entropy_conditional"].value == one["entropy_marginal"].value == 4.0
    assert one["mi_ceiling"].value == 0.0
    assert one["thought_tokens"].value == 3.0
    for name in ("mi", "mi_loo", "mi_saturated", "gap", "gap_per_token", "zscore_ema", "mi_head_16", "accuracy"):
        assert one[name].value is None
        assert "2 prompts, found 1" in one[name].why


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (CrossScores([], [], []), "no thought to score"),
        (cross_scores([[-1.0, math.nan], [-1.0, -1.0]], [0, 1]), "the scores hold NaN or infinite values"),
        (cross_scores([[-1.0, -math.inf], [-1.0, -1.0]], [0, 1]), "the scores hold NaN or infinite values"),
        (cross_scores([[-1.0, -1e160], [-1.0, -1.0]], [0, 1]), "the scores hold NaN or infinite values"),
    ],
)
def test_what_cannot_be_measured_has_the_same_names_no_values_and_a_reason(scores, why):
    state = ZScoreState(0.2, 0.1)
    result = measure(scores, state)
    assert [metric.name for metric in result.metrics] == [metric.name for metric in measure(TWO).metrics]
    assert all(metric.value is None and metric.why == why for metric in result.metrics)
    assert result.state == state


def test_names_follow_the_grammar():
    names = [metric.name for metric in measure(TWO).metrics]
    assert "information/first_turn/mi" in names
    assert "retrieval/first_turn/accuracy@2" in names
    foreign = information(TWO, "any_turn/sokoban", np.random.default_rng(0), scorer="judge").metrics
    assert foreign[0].name == "information@judge/any_turn/sokoban/mi"
    assert foreign[-1].name == "retrieval@judge/any_turn/sokoban/p_value"


def test_every_reading_counts_its_thoughts_and_holds_plain_numbers():
    for metric in measure(random_scores(8)).metrics:
        assert metric.n == 13
        assert all(type(number) in (float, type(None)) for number in (metric.value, metric.low, metric.high))


def test_the_z_score_smooths_its_divisor_alone_and_starts_raw():
    first, second = random_scores(9), random_scores(10)
    start = measure(first)
    std = float(np.std(_marginal_per_token(first)))
    assert start.state.std == pytest.approx(std)
    then = measure(second, start.state)
    smoothed = 0.9 * std + 0.1 * float(np.std(_marginal_per_token(second)))
    assert then.state.std == pytest.approx(smoothed)
    found = by_name(then.metrics)
    assert found["zscore_ema"].value == pytest.approx(found["mi_per_token"].value / (smoothed + 1e-3))
    assert found["zscore"].value != pytest.approx(found["zscore_ema"].value)
    tempered = [_tempered_marginal(scores) for scores in (first, second)]
    assert start.state.std_tempered == pytest.approx(float(np.std(tempered[0])))
    smoothed_tempered = 0.9 * float(np.std(tempered[0])) + 0.1 * float(np.std(tempered[1]))
    assert then.state.std_tempered == pytest.approx(smoothed_tempered)
    expected = found["mi_tempered"].value / (smoothed_tempered + 1e-3)
    assert found["zscore_ema_tempered"].value == pytest.approx(expected)
    assert measure(second, start.state).state == then.state, "a state is not changed in place"


def _marginal_per_token(scores):
    weights = np.bincount(scores.own_M) / len(scores.own_M)
    return np.log(np.exp(scores.scores_MN) @ weights) / np.array(scores.lengths_M)


def _tempered_marginal(scores):
    weights = np.bincount(scores.own_M) / len(scores.own_M)
    return np.log(np.exp(np.asarray(scores.scores_MN) / np.array(scores.lengths_M)[:, None]) @ weights)


def test_a_measurement_under_a_single_prompt_leaves_the_state_of_the_z_score_as_it_is():
    state = ZScoreState(0.2, 0.1)
    assert measure(cross_scores([[-3.0], [-5.0]], [0, 0]), state).state == state
    assert measure(cross_scores([[-3.0], [-5.0]], [0, 0])).state == ZScoreState()


def test_the_state_of_the_z_score_survives_json():
    state = measure(random_scores(11)).state
    for each in (state, ZScoreState()):
        assert ZScoreState(**json.loads(json.dumps(asdict(each)))) == each


def test_where_nothing_differs_no_interval_excludes_zero():
    scores = CrossScores([[-3.3] * 3] * 9, [8] * 9, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    found = {metric.name.rsplit("/")[-1]: metric for metric in measure(scores).metrics}
    for name in ("mi", "mi_loo", "gap", "gap_per_token"):
        assert (found[name].value, found[name].low, found[name].high) == (0.0, 0.0, 0.0)


def test_selecting_rows_drops_prompts_that_lose_their_last_thought():
    scores = random_scores(12)
    chosen = [own not in (1, 4) for own in scores.own_M]
    selected = select_rows(scores, chosen)
    assert np.asarray(selected.scores_MN).shape == (sum(chosen), 4)
    assert values(selected) == values(delete_prompt(delete_prompt(scores, 4), 1))
    assert measure(select_rows(scores, [False] * 13)).metrics[0].why == "no thought to score"


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        (cross_scores([[0.0, 0.0]], [0]), "No thought was sampled under prompt 1 of 2"),
        (cross_scores([[0.0], [0.0]], [0, 1]), "columns 0 to 0, found 1 for thought 1"),
        (cross_scores([[0.0], [0.0]], [0, 0], [1, 0]), "Thought 1 has 0 tokens"),
        (cross_scores([[0.0], [0.0]], [0, 0], [1]), "found 1 lengths for 2 thoughts"),
        (cross_scores([[0.0], [0.0]], [0, 0], [1, math.nan]), "Thought 1 has nan tokens"),
        (cross_scores([[0.0, 0.0]], [0.5]), "columns 0 to 1, found 0.5 for thought 0"),
        (cross_scores([[0.0] * 4] * 2, [0, 0, 1, 1]), "one row of scores per thought, found 2 rows for the 4 thoughts"),
        (cross_scores([0.0] * 4, [0, 1]), r"a matrix of numbers as `scores_MN`, found the shape \(4,\)"),
        (cross_scores([[0.0], ["many"]], [0, 0]), "Expected numbers as `scores_MN`, found a list that holds others"),
        (
            cross_scores(np.array([[-1 + 1j], [0]]), [0, 0]),
            r"Expected numbers as `scores_MN`, .* others \(complex numbers",
        ),
        (cross_scores([[0.0], [0.0]], (own for own in (0, 0)), [1, 1]), "as `own_M`, found a generator"),
        (replace(TWO, heads={16: [[0.0] * 4]}), r"`heads\[16\]` of the shape \(2, 2\), found \(1, 4\)"),
        (replace(TWO, heads={"16": [[0.0] * 2] * 2}), r"numbers of tokens, from 1 on, to scores, found \{'16': "),
        (replace(TWO, lengths_M=[4, math.inf]), "Thought 1 has inf tokens"),
        (replace(TWO, tasks_M=[["a"], ["b", "c"]]), "as `tasks_M`, one per thought, found lists of different lengths"),
        (replace(TWO, heads=3), "numbers of tokens, from 1 on, to scores, found 3"),
        (replace(TWO, noise="low"), "Expected numbers as `noise`, found a str"),
        (replace(TWO, noise=[0.1]), r"Expected a number as `noise`, found the shape \(1,\)"),
        (replace(TWO, noise=-0.1), "at least 0 nats as `noise`, found -0.1"),
        (replace(TWO, tasks_M=["a"]), r"a list of 2 tasks as `tasks_M`, one per thought, found the shape \(1,\)"),
    ],
)
def test_inconsistent_scores_are_refused_with_a_sentence(scores, sentence):
    with pytest.raises(ValueError, match=sentence):
        measure(scores)


def _coverage(statistic, channel, batches, seed):
    """Share of batches whose interval holds the statistic's expectation, and that expectation."""
    rng = np.random.default_rng(seed)
    estimates = [statistic(score_matrix(gaussian_channel(rng, *channel))) for _ in range(batches)]
    expected = float(np.mean([estimate.value for estimate in estimates]))
    intervals = [jackknife_interval(estimate.value, estimate.deleted_N) for estimate in estimates]
    return float(np.mean([low <= expected <= high for low, high in intervals])), expected


def _plug_in(matrix):
    return mixture.information(matrix, mixture.mixture(matrix, matrix.scores_MN))


@pytest.mark.parametrize("true_information", [0.1, 0.5, 2.0])
def test_intervals_cover_the_expected_plug_in_of_a_gaussian_channel(true_information):
    coverage, expected = _coverage(_plug_in, (16, 4, true_information), 300, seed=1)
    assert 0.91 <= coverage <= 0.985
    assert expected < true_information


@pytest.mark.proof
@pytest.mark.parametrize("true_information", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("prompts", "members"), [(32, 8), (16, 2)])
def test_intervals_cover_the_expected_plug_in_at_full_size(prompts, members, true_information):
    coverage, _ = _coverage(_plug_in, (prompts, members, true_information), 4000, seed=2)
    assert 0.93 <= coverage <= 0.975


@pytest.mark.proof
@pytest.mark.parametrize(("prompts", "members"), [(32, 8), (16, 2)])
def test_close_to_the_ceiling_the_plug_in_is_skewed_and_coverage_is_rougher(prompts, members):
    coverage, expected = _coverage(_plug_in, (prompts, members, 4.0), 4000, seed=2)
    assert expected > 0.85 * LOG(prompts)
    assert 0.9 <= coverage <= 0.985


@pytest.mark.proof
@pytest.mark.parametrize("true_information", [0.1, 0.5, 2.0])
def test_intervals_of_the_gap_fall_short_of_their_level_by_a_few_points_at_sixteen_prompts(true_information):
    coverage, _ = _coverage(mixture.gap, (16, 2, true_information), 4000, seed=3)
    assert 0.86 <= coverage <= 0.95


def test_plug_in_and_leave_one_out_bracket_the_information_of_a_gaussian_channel():
    rng, found = np.random.default_rng(3), []
    for _ in range(40):
        found.append(values(gaussian_channel(rng, 32, 4, 0.5)))
    plug_in = np.mean([metrics["mi"].value for metrics in found])
    left_out = np.mean([metrics["mi_loo"].value for metrics in found])
    assert plug_in < 0.5 < left_out
    assert plug_in == pytest.approx(0.5, abs=0.06)
