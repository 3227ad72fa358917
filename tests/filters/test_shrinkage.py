"""Variances that borrow strength: hand-computed posteriors, what they may change, what the past adds."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, kendalltau

from heedful.diagnostics.statistics.group_statistics import is_constant, sample_variance
from heedful.filters import RandomSubset, Shrunken, SoftWeight, TopK, TopP, TopPStd, Visit
from heedful.filters.shrinkage import expected_variances, fit_beta, fit_inverse_gamma

RNG = random.Random(0)
outcomes = st.sampled_from([0.0, 1.0])
tenths = st.integers(-30, 110).map(lambda number: number / 10)


def ones(successes: int, episodes: int) -> list[float]:
    return [1.0] * successes + [0.0] * (episodes - successes)


def alone(values: list[float], earlier: list[Visit] | None = None, **knobs: float) -> float:
    return expected_variances([values], [earlier or []], **knobs)[0]  # type: ignore[arg-type]


def test_the_posterior_mean_under_jeffreys_prior_by_hand() -> None:
    # Beta(1.5, 3.5) after one success in four: 1.5 x 3.5 / (5 x 6).
    assert alone(ones(1, 4)) == pytest.approx(0.175)
    assert alone(ones(2, 4)) == pytest.approx(2.5 * 2.5 / 30)
    assert alone(ones(0, 4)) == pytest.approx(0.5 * 4.5 / 30)
    posterior = beta(1.5, 3.5)
    assert alone(ones(1, 4)) == pytest.approx(posterior.expect(lambda p: p * (1 - p)))


def test_earlier_visits_count_as_discounted_outcomes() -> None:
    earlier = [Visit.of(ones(4, 4)), Visit.of(ones(3, 4))]  # the last visit had three successes
    # One success of four now, 3 of 4 at .5, 4 of 4 at .25: 1 + 1.5 + 1 ones, 3 + .5 zeros.
    a, b = 0.5 + 3.5, 0.5 + 3.5
    assert alone(ones(1, 4), earlier, discount=0.5) == pytest.approx(a * b / ((a + b) * (a + b + 1)))
    assert alone(ones(1, 4), earlier, discount=0.0) == alone(ones(1, 4))
    whole = alone([*ones(1, 4), *ones(3, 4), *ones(4, 4)])
    assert alone(ones(1, 4), earlier, discount=1.0) == pytest.approx(whole)


def test_the_fitted_beta_by_hand() -> None:
    # Means 1/4 and 3/4 of four each: between 8 / 16 / 1 = .5, within 2 x 4 x 3/16 / 6 = .25.
    mean, strength = fit_beta([ones(1, 4), ones(3, 4)])
    correlation = (0.5 - 0.25) / (0.5 + 3 * 0.25)
    assert (mean, strength) == pytest.approx((0.5, 1 / correlation - 1))


def test_the_fit_finds_the_prior_that_drew_the_groups() -> None:
    rng = random.Random(1)
    values_PG = []
    for _ in range(4000):
        p = rng.betavariate(1.0, 3.0)
        values_PG.append([float(rng.random() < p) for _ in range(rng.choice([4, 8]))])
    mean, strength = fit_beta(values_PG)
    assert mean == pytest.approx(0.25, abs=0.015)
    assert strength == pytest.approx(4, rel=0.12)


def test_groups_that_differ_by_no_more_than_chance_get_one_variance_and_all_stay() -> None:
    values_PG = [ones(2, 4), ones(2, 4), ones(1, 4)]
    assert fit_beta(values_PG) == (pytest.approx(5 / 12), math.inf)
    assert expected_variances(values_PG, [()] * 3, "batch") == [pytest.approx(5 / 12 * 7 / 12)] * 3
    verdicts = Shrunken(like=TopK(k=1), prior="batch")(values_PG, RNG)
    assert [verdict.kept for verdict in verdicts] == [True] * 3


def test_where_there_is_nothing_to_fit_to_the_prior_is_jeffreys() -> None:
    for values_PG in ([ones(1, 4)], [[1.0], [0.0]], [ones(4, 4), ones(4, 4)], []):
        assert fit_beta(values_PG) == (0.5, 1.0)


def test_continuous_variances_move_towards_their_mean_by_hand() -> None:
    # Variances 2 and 1/2 with one degree of freedom each: mean 1.25, second moment (4 + .25) / 2 / 3 < 1.25^2.
    values_PG = [[0.0, 2.0], [0.0, 1.0]]
    assert fit_inverse_gamma(values_PG) == (math.inf, 1.25)
    assert expected_variances(values_PG, [(), ()]) == [1.25, 1.25]
    # Variances 1 and 100 with 3 degrees: mean 50.5, second moment (1 + 10000) / 2 / (5/3) = 3000.3.
    wide = [[math.sqrt(3) / 2 * sign * size for sign in (1, 1, -1, -1)] for size in (1, 10)]
    d0, mean = fit_inverse_gamma(wide)
    assert mean == pytest.approx(50.5)
    assert d0 == pytest.approx(2 * (50.5**2 / (3000.3 - 50.5**2) + 1))
    assert expected_variances(wide, [(), ()]) == pytest.approx(
        [(d0 * 50.5 + 3 * variance) / (d0 + 3) for variance in (1, 100)]
    )


@pytest.mark.parametrize("scale", [10.0, 1e80, 1e150])
def test_the_fit_to_continuous_values_does_not_depend_on_their_scale(scale: float) -> None:
    values_PG = [[0.0, 1.0, 0.3], [0.0, 0.1, 0.2], [0.5, 0.5, 0.9]]
    freedom, mean = fit_inverse_gamma(values_PG)
    scaled = fit_inverse_gamma([[value * scale for value in values_G] for values_G in values_PG])
    assert scaled == (pytest.approx(freedom), pytest.approx(mean * scale**2))


def test_the_past_of_continuous_values_adds_squares_and_degrees_of_freedom() -> None:
    wide = [[math.sqrt(3) / 2 * sign * size for sign in (1, 1, -1, -1)] for size in (1, 10)]
    d0, mean = fit_inverse_gamma(wide)
    earlier = [[Visit.of([0.0, 4.0])], []]  # squares 8, one degree of freedom
    estimate = expected_variances(wide, earlier, discount=0.5)[0]
    assert estimate == pytest.approx((d0 * mean + 3 + 0.5 * 8) / (d0 + 3 + 0.5))


@given(st.integers(2, 9).flatmap(lambda size: st.lists(st.lists(outcomes, min_size=size, max_size=size), min_size=1)))
def test_with_equal_groups_and_jeffreys_prior_no_rank_of_0_1_outcomes_changes(values_PG: list[list[float]]) -> None:
    plain = [sample_variance(values) for values in values_PG]
    shrunken = expected_variances(values_PG, [()] * len(values_PG))
    for one in range(len(plain)):
        for other in range(len(plain)):
            assert (plain[one] > plain[other] + 1e-9) == (shrunken[one] > shrunken[other] + 1e-9)


def test_a_fitted_prior_that_leans_to_one_side_tells_one_success_from_one_failure() -> None:
    # Most groups fail nearly always: three of four is then rather luck, and its chance nearer to one half.
    values_PG = [ones(0, 4)] * 8 + [ones(1, 4), ones(3, 4)]
    assert sample_variance(values_PG[-1]) == sample_variance(values_PG[-2])
    *_, one, three = expected_variances(values_PG, [()] * 10, "batch")
    assert three > one
    *_, one, three = expected_variances(values_PG, [()] * 10, "jeffreys")
    assert three == pytest.approx(one)


def test_a_group_that_lost_members_no_longer_looks_the_most_promising() -> None:
    # One of two: sample variance .5, the largest there is; but two episodes are hardly evidence.
    values_PG = [[1.0, 0.0, None, None], ones(2, 4), ones(1, 4)]
    assert [verdict.kept for verdict in TopK(k=1)(values_PG, RNG)] == [True, False, False]
    assert [verdict.kept for verdict in Shrunken(like=TopK(k=1))(values_PG, RNG)] == [False, True, False]


@given(st.lists(st.lists(tenths, min_size=2, max_size=5) | st.lists(outcomes, min_size=2, max_size=5), max_size=8))
def test_a_constant_group_never_enters_and_has_a_spread_of_zero(values_PG: list[list[float]]) -> None:
    for filter in (Shrunken(), Shrunken(prior="batch"), Shrunken(like=SoftWeight()), Shrunken(like=TopPStd())):
        for values, verdict in zip(values_PG, filter(values_PG, RNG), strict=True):
            if is_constant(values):
                assert (verdict.weight, verdict.reason, verdict.spread) == (0.0, "constant", 0.0)
            else:
                assert verdict.spread > 0


@given(st.lists(st.lists(outcomes, min_size=2, max_size=6), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_groups_does_not_matter_with_a_past_either(
    values_PG: list[list[float]], rng: random.Random
) -> None:
    earlier = [[Visit.of([float(rng.random() < 0.5) for _ in range(4)])] * rng.randrange(3) for _ in values_PG]
    filter = Shrunken(prior="batch")
    verdicts = filter.after(earlier)(values_PG, RNG)
    order = rng.sample(range(len(values_PG)), len(values_PG))
    assert filter.after([earlier[i] for i in order])([values_PG[i] for i in order], RNG) == [verdicts[i] for i in order]


def test_the_past_changes_what_is_kept_and_reaches_through_the_random_control() -> None:
    values_PG = [ones(2, 4), ones(1, 4)]
    earlier = [[Visit.of(ones(8, 8))] * 3, [Visit.of(ones(4, 8))] * 3]
    filter = Shrunken(like=TopK(k=1), discount=0.8)
    assert [verdict.kept for verdict in filter(values_PG, RNG)] == [True, False]
    assert [verdict.kept for verdict in filter.after(earlier)(values_PG, RNG)] == [False, True]
    control = RandomSubset(like=filter).after(earlier)
    assert [verdict.spread for verdict in control(values_PG, RNG)] == [
        verdict.spread for verdict in filter.after(earlier)(values_PG, RNG)
    ]
    assert RandomSubset().after(earlier) == RandomSubset()


def test_the_share_of_the_loss_scale_rho_is_that_of_the_filter_inside() -> None:
    assert Shrunken(like=TopP(p=0.7)).share == 0.7
    assert Shrunken(like=TopK()).share is None


def ranks(visits: int, seed: int) -> tuple[float, float]:
    """Kendall's tau with the true p (1 - p), over groups that vary: plain, and after so many earlier visits."""
    rng = random.Random(seed)
    chances = [rng.betavariate(0.5, 0.5) for _ in range(64)]

    def play(p: float) -> list[float]:
        return [float(rng.random() < p) for _ in range(4)]

    earlier = [[Visit.of(play(p)) for _ in range(visits)] for p in chances]
    values_PG = [play(p) for p in chances]
    varying = [i for i, values in enumerate(values_PG) if not is_constant(values)]
    truth = [chances[i] * (1 - chances[i]) for i in varying]
    plain = [sample_variance(values_PG[i]) for i in varying]
    informed = expected_variances(values_PG, earlier, discount=0.8)
    return kendalltau(plain, truth).statistic, kendalltau([informed[i] for i in varying], truth).statistic


def test_four_earlier_visits_bring_the_ranking_much_closer_to_the_true_one() -> None:
    taus = [ranks(4, seed) for seed in range(20)]
    plain, informed = fmean(tau for tau, _ in taus), fmean(tau for _, tau in taus)
    assert informed > plain + 0.25
    assert sum(informed > plain for plain, informed in taus) == 20
