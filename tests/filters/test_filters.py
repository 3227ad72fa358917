"""Filters: hand-computed verdicts, and the properties every filter must keep."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.algorithms.advantages import GroupRelative
from heedful.diagnostics.statistics.group_statistics import is_constant, sample_variance, scored
from heedful.filters import (
    FILTERS,
    DropConstant,
    KeepAll,
    MinP,
    RandomSubset,
    Shrunken,
    Softmax,
    SoftWeight,
    TopK,
    TopP,
    TopPStd,
    values_on,
)
from heedful.types import Ending, Group, Prompt, Reply, Span, Task, Trajectory, Turn

RNG = random.Random(0)
# Sample variances 2, 1/2, 1/8, 0: deviations sqrt 2, 1/sqrt 2, 1/sqrt 8, 0.
HALVING = [[0.0, 2.0], [0.0, 1.0], [0.0, 0.5], [1.0, 1.0]]
RANKING = [
    TopP(p=0.8),
    TopPStd(p=0.8),
    TopK(k=3),
    MinP(p=0.2),
    Softmax(p=0.8),
    SoftWeight(power=0.5),
    Shrunken(like=TopK(k=3)),
]

tenths = st.integers(-30, 110).map(lambda number: number / 10)
groups = st.lists(st.lists(tenths, min_size=2, max_size=6), min_size=1, max_size=10)


def kept(filter, values_PG, seed=0):
    return [verdict.kept for verdict in filter(values_PG, random.Random(seed))]


def reasons(filter, values_PG, seed=0):
    return [verdict.reason for verdict in filter(values_PG, random.Random(seed))]


def test_top_p_takes_the_smallest_set_whose_variance_reaches_the_share():
    # Total 2.625: the first group holds .762 of it, the first two .952.
    assert kept(TopP(p=0.76), HALVING) == [True, False, False, False]
    assert kept(TopP(p=0.77), HALVING) == [True, True, False, False]
    assert kept(TopP(p=0.96), HALVING) == [True, True, True, False]
    assert reasons(TopP(p=0.76), HALVING) == ["kept", "below_mass", "below_mass", "constant"]
    assert [verdict.spread for verdict in TopP()(HALVING, RNG)] == [2.0, 0.5, 0.125, 0.0]


@pytest.mark.parametrize("unit", [number / 10 for number in range(1, 40)])
def test_a_share_that_is_reached_exactly_needs_no_further_group_whatever_the_unit(unit):
    # Variances 9 : 1, of which rounding makes now a little more, now a little less than nine tenths.
    assert kept(TopP(p=0.9), [[0.0, 3 * unit], [0.0, unit]]) == [True, False]


def test_top_p_std_accumulates_deviations():
    # Deviations 1.414, .707, .354 of 2.475: shares .571, .857, 1.
    assert kept(TopPStd(p=0.57), HALVING) == [True, False, False, False]
    assert kept(TopPStd(p=0.85), HALVING) == [True, True, False, False]
    assert kept(TopPStd(p=0.86), HALVING) == [True, True, True, False]
    assert TopPStd()(HALVING, RNG)[0].spread == pytest.approx(math.sqrt(2))


def test_top_k_and_min_p_by_hand():
    assert kept(TopK(k=2), HALVING) == [True, True, False, False]
    assert reasons(TopK(k=2), HALVING) == ["kept", "kept", "below_rank", "constant"]
    assert kept(TopK(k=9), HALVING) == [True, True, True, False]
    assert kept(MinP(p=0.25), HALVING) == [True, True, False, False]
    assert reasons(MinP(p=0.26), HALVING) == ["kept", "below_threshold", "below_threshold", "constant"]


def test_softmax_by_hand_and_its_dependence_on_the_unit_of_reward():
    # Weights exp(1.414), exp(.707), exp(.354), 1 of 8.565: running shares .480, .717, .883, 1.
    assert kept(Softmax(p=0.48), HALVING) == [True, False, False, False]
    assert kept(Softmax(p=0.88), HALVING) == [True, True, True, False]
    assert kept(Softmax(p=0.9), HALVING) == [True, True, True, True]
    assert reasons(Softmax(p=0.9, include_constant=False), HALVING) == ["kept", "kept", "kept", "constant"]
    ten_times = [[10 * value for value in values] for values in HALVING]
    assert kept(Softmax(p=0.9), ten_times) == [True, False, False, False]
    assert kept(Softmax(p=0.9, temperature=10.0), ten_times) == [True, True, True, True]


@pytest.mark.parametrize(
    "filter", [TopP(p=0.5), TopPStd(p=0.5), TopK(k=1), MinP(p=1.0), Softmax(p=0.5), DropConstant()], ids=repr
)
def test_ties_at_the_edge_are_all_kept(filter):
    assert kept(filter, [[0.0, 1.0], [5.0, 6.0], [1.0, 0.0], [3.0, 3.0]])[:3] == [True, True, True]


def test_keep_all_and_drop_constant():
    assert reasons(KeepAll(), [*HALVING, [None, 1.0], [1.0], [None]]) == ["kept"] * 4 + ["unscored", "kept", "unscored"]
    assert reasons(DropConstant(), HALVING) == ["kept"] * 3 + ["constant"]


@pytest.mark.parametrize("name", [name for name in FILTERS if name not in ("keep_all", "softmax", "random_subset")])
def test_when_all_groups_are_constant_nothing_is_kept(name):
    verdicts = FILTERS[name]()([[1.0, 1.0], [0.0, 0.0], [0.3, 0.3]], RNG)
    assert [(verdict.weight, verdict.reason, verdict.spread) for verdict in verdicts] == [(0.0, "constant", 0.0)] * 3


def test_a_thousand_constant_groups_of_sokoban_rewards_have_a_spread_of_exactly_zero():
    rng = random.Random(7)
    values_PG = []
    for _ in range(1000):
        # Ten steps of -0.1, boxes and penalties, added up in a different order by every member.
        parts = [-0.1] * rng.randint(1, 10) + rng.choices([1.0, -1.0, 10.0, -0.1], k=3)
        values_PG.append([sum(rng.sample(parts, len(parts))) for _ in range(rng.randint(2, 16))])
    assert any(len(set(values)) > 1 for values in values_PG), "the sums must differ by rounding, or this proves nothing"
    for filter in (TopP(), DropConstant(), TopK(k=5), MinP(), TopPStd()):
        verdicts = filter(values_PG, RNG)
        assert {(verdict.weight, verdict.reason, verdict.spread) for verdict in verdicts} == {(0.0, "constant", 0.0)}


def test_soft_weights_are_proportional_to_the_variance_and_average_one():
    # Variances 2, 1/2, 1/8: mean .875. Deviations 1.414, .707, .354: mean .825.
    verdicts = SoftWeight()([*HALVING, [None, 1.0]], RNG)
    assert [verdict.weight for verdict in verdicts] == pytest.approx([2 / 0.875, 0.5 / 0.875, 0.125 / 0.875, 0, 0])
    assert [verdict.reason for verdict in verdicts] == ["kept"] * 3 + ["constant", "unscored"]
    assert [verdict.spread for verdict in verdicts] == [2.0, 0.5, 0.125, 0.0, None]
    weights = [verdict.weight for verdict in SoftWeight(power=0.5)(HALVING, RNG)]
    assert weights[:3] == pytest.approx([12 / 7, 6 / 7, 3 / 7])


def test_soft_weights_by_the_deviation_undo_the_division_by_it_up_to_a_factor_of_the_step():
    weights = [verdict.weight for verdict in SoftWeight(power=0.5)(HALVING[:3], RNG)]
    standardized = [GroupRelative()(values) for values in HALVING[:3]]
    plain = [GroupRelative(standardize=False)(values) for values in HALVING[:3]]
    ratios = [
        weight * one / other
        for weight, ones, others in zip(weights, standardized, plain, strict=True)
        for one, other in zip(ones, others, strict=True)
    ]
    assert ratios == pytest.approx([ratios[0]] * 6)


@given(groups, st.floats(0.0, 9.0))
def test_soft_weights_keep_every_group_that_varies_and_average_one(values_PG, power):
    verdicts = SoftWeight(power=power)(values_PG, RNG)
    assert [verdict.kept for verdict in verdicts] == [not is_constant(values) for values in values_PG]
    weights = [verdict.weight for verdict in verdicts if verdict.kept]
    assert not weights or math.fsum(weights) / len(weights) == pytest.approx(1)
    by_spread = sorted((verdict.spread, verdict.weight) for verdict in verdicts if verdict.kept)
    assert all(low <= high * (1 + 1e-9) for (_, low), (_, high) in pairwise(by_spread))


def test_a_power_of_zero_is_drop_constant_and_a_huge_one_drops_nobody():
    assert SoftWeight(power=0)(HALVING, RNG) == DropConstant()(HALVING, RNG)
    assert kept(SoftWeight(power=1e6), HALVING) == [True, True, True, False]


@given(groups, st.sampled_from([0.01, 0.3, 7.0, 1000.0]))
def test_the_unit_of_reward_does_not_change_soft_weights(values_PG, factor):
    scaled = SoftWeight()([[factor * value for value in values] for values in values_PG], RNG)
    assert [verdict.weight for verdict in scaled] == pytest.approx(
        [verdict.weight for verdict in SoftWeight()(values_PG, RNG)]
    )


def test_the_random_control_of_a_soft_filter_deals_out_its_weights():
    like = SoftWeight()
    weights = sorted(verdict.weight for verdict in like(HALVING, RNG) if verdict.kept)
    control, rng = RandomSubset(like=like), random.Random(4)
    seen = {tuple(verdict.weight for verdict in control(HALVING, rng)) for _ in range(400)}
    assert len(seen) == 24  # four places for three weights and a nothing
    assert all(sorted(dealt)[1:] == weights for dealt in seen)


def test_missing_members_are_left_out_of_the_spread_and_not_counted_as_zero():
    complete = TopP()([[0.0, 2.0]], RNG)[0]
    assert TopP()([[0.0, None, 2.0, math.nan]], RNG) == [complete]
    assert reasons(TopP(), [[5.0, None], [math.nan, None], [], [5.0], [0.0, 1.0]]) == ["unscored"] * 4 + ["kept"]
    assert TopP()([[5.0, None]], RNG)[0].spread is None
    assert reasons(TopP(), [[5.0, None, 5.0]]) == ["constant"]


@pytest.mark.parametrize("filter", [*RANKING, RandomSubset()], ids=repr)
def test_unscored_groups_are_never_kept(filter):
    assert kept(filter, [[None, 1.0], [math.nan]]) == [False, False]
    assert kept(filter, [[None, 1.0], [0.0, 1.0], [math.nan, math.nan]]) == [False, True, False]


@given(groups)
def test_p_of_one_keeps_every_group_that_is_not_constant(values_PG):
    expected = [not is_constant(values) for values in values_PG]
    assert (
        kept(TopP(p=1.0), values_PG) == kept(TopPStd(p=1.0), values_PG) == kept(DropConstant(), values_PG) == expected
    )


def test_p_of_one_keeps_a_group_of_vanishing_mass():
    assert kept(TopP(p=1.0), [[0.0, 1e6], [0.0, 0.001]]) == [True, True]


@given(groups, st.sampled_from(RANKING), st.randoms(use_true_random=False))
def test_the_order_of_groups_and_members_does_not_matter(values_PG, filter, rng):
    verdicts = filter(values_PG, RNG)
    order = rng.sample(range(len(values_PG)), len(values_PG))
    shuffled = [rng.sample(values_PG[group], len(values_PG[group])) for group in order]
    assert filter(shuffled, RNG) == [verdicts[group] for group in order]


@given(groups, st.sampled_from([TopP(p=0.5), TopP(p=0.9), TopPStd(p=0.9), MinP(p=0.25), TopK(k=2)]))
@pytest.mark.parametrize("factor", [0.01, 0.3, 7.0, 1000.0])
def test_the_unit_of_reward_does_not_change_what_is_kept(factor, values_PG, filter):
    assert kept(filter, [[factor * value for value in values] for values in values_PG]) == kept(filter, values_PG)


@given(groups, st.floats(0.01, 1.0))
def test_top_p_keeps_enough_mass_and_no_group_too_many(values_PG, p):
    verdicts = TopP(p=p)(values_PG, RNG)
    spreads = sorted((verdict.spread for verdict in verdicts if verdict.kept), reverse=True)
    total = math.fsum(verdict.spread for verdict in verdicts)
    assert math.fsum(spreads) >= p * total * (1 - 1e-6)
    strictly_above_the_edge = [spread for spread in spreads if spread > spreads[-1] * (1 + 1e-6)]
    assert p == 1 or not spreads or math.fsum(strictly_above_the_edge) < p * total * (1 + 1e-6)


@given(groups, st.sampled_from(RANKING), st.integers(0, 1000))
def test_the_random_control_keeps_as_many_groups_as_the_filter_it_mimics(values_PG, like, seed):
    assert sum(kept(RandomSubset(like=like), values_PG, seed)) == sum(kept(like, values_PG))


def test_the_random_control_draws_uniformly_among_scored_groups_constant_ones_included():
    values_PG = [[0.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.1], [None, 1.0]]
    control, rng = RandomSubset(like=TopK(k=1)), random.Random(3)
    counts = [0] * 5
    for _ in range(2000):
        for group, verdict in enumerate(control(values_PG, rng)):
            counts[group] += verdict.kept
    assert counts[4] == 0
    # 500 expected, standard deviation 19.
    assert all(abs(count - 500) < 80 for count in counts[:4])
    assert sorted(reasons(control, values_PG)) == ["kept", "not_drawn", "not_drawn", "not_drawn", "unscored"]


def test_the_random_control_repeats_with_its_seed():
    values_PG = [[0.0, number / 7] for number in range(1, 20)]
    assert kept(RandomSubset(), values_PG, 5) == kept(RandomSubset(), values_PG, 5)
    assert kept(RandomSubset(), values_PG, 5) != kept(RandomSubset(), values_PG, 6)


@given(groups, st.sampled_from(RANKING))
def test_no_filter_but_the_control_touches_the_generator(values_PG, filter):
    rng = random.Random(1)
    before = rng.getstate()
    filter(values_PG, rng)
    assert rng.getstate() == before


def test_no_groups_give_no_verdicts():
    assert [filter()([], RNG) for filter in FILTERS.values()] == [[]] * len(FILTERS)


@pytest.mark.parametrize("make", [Shrunken, RandomSubset])
def test_a_filter_and_the_one_inside_it_look_at_the_same_values(make):
    with pytest.raises(ValueError, match="Set both to the same name"):
        make(on="reward")


def test_numpy_scalars_are_counted_in_double_precision():
    numpy = pytest.importorskip("numpy")
    values = numpy.array([0.1, 0.2, 0.4], dtype=numpy.float32)
    assert all(type(value) is float for value in scored(values))
    assert type(sample_variance(scored(values))) is float


@settings(max_examples=50)
@given(st.lists(tenths, min_size=2, max_size=16))
def test_the_sample_variance_is_that_of_the_textbook(values):
    mean = sum(values) / len(values)
    expected = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    assert sample_variance(values) == pytest.approx(expected, abs=1e-12)


def trajectory(outcome, *rewards):
    reply = Reply(Prompt("", ()), (), "", (), (), Span(0, 0), Span(0, 0), True, False)
    turns = tuple(Turn(reply, components, (), True, "", "") for components in rewards)
    return Trajectory(Task("t", 0, "train"), 0, turns, Ending.FAILED, outcome)


def test_values_are_read_off_the_groups_by_name():
    group = Group(
        Task("t", 0, "train"),
        (
            trajectory(1.0, {"step": -0.1, "solved": 1.0}, {"step": -0.1}),
            trajectory(0.0, {"step": -0.1}),
            trajectory(None, {"step": -0.1}),
        ),
    )
    assert values_on([group], "outcome") == [[1.0, 0.0, None]]
    assert values_on([group], "reward") == [[pytest.approx(0.8), -0.1, None]]
    assert values_on([group], "solved") == [[1.0, 0.0, None]]
    assert values_on([group], "sloved") == [[None, None, None]]


def test_only_filters_that_ask_for_a_share_have_one():
    shares = {name: chosen().share for name, chosen in FILTERS.items()}
    assert {name: share for name, share in shares.items() if share is not None} == {
        "top_p": 0.9,
        "top_p_std": 0.9,
        "shrunken": 0.9,
    }
