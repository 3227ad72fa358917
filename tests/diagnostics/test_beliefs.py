"""Beliefs about a task's chance of success, against integrals and against forgetting visit by visit."""

from __future__ import annotations

import random

import pytest
from scipy.special import roots_sh_jacobi

from heedful.diagnostics.statistics.beliefs import JEFFREYS, Belief
from heedful.filters.shrinkage import Visit, expected_variances


@pytest.mark.parametrize(("ones", "zeros"), [(0.5, 0.5), (3.2, 1.7), (0.9, 12.0)])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_belief_gives_the_integrals_of_its_density(ones: float, zeros: float, count: int) -> None:
    belief = Belief(ones, zeros)
    # Gauss's rule for the weight p^(a - 1) (1 - p)^(b - 1): exact for polynomials up to degree 23.
    chances, weights = roots_sh_jacobi(12, ones + zeros - 1, ones)
    weights /= weights.sum()
    assert belief.variance == pytest.approx(weights @ (chances * (1 - chances)), abs=1e-12)
    assert belief.all_right(count) == pytest.approx(weights @ chances**count, abs=1e-12)
    assert belief.all_wrong(count) == pytest.approx(weights @ (1 - chances) ** count, abs=1e-12)


def test_weighing_visits_is_forgetting_visit_by_visit() -> None:
    rng, ones, zeros = random.Random(3), *JEFFREYS
    visits = []
    for _ in range(9):
        count = rng.randint(1, 8)
        visits.append((count, rng.randint(0, count)))
        ones = JEFFREYS[0] + 0.8 * (ones - JEFFREYS[0]) + visits[-1][1]
        zeros = JEFFREYS[1] + 0.8 * (zeros - JEFFREYS[1]) + count - visits[-1][1]
        found = Belief.of(visits, 0.8)
        assert (found.ones, found.zeros) == pytest.approx((ones, zeros), abs=1e-12)


def test_the_shrunken_filter_estimates_what_the_belief_expects() -> None:
    past, group = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]], [0.0, 1.0, 0.0, 0.0]
    (estimate,) = expected_variances([group], [[Visit.of(values) for values in past]], discount=0.5)
    belief = Belief.of([(3, 1), (3, 2), (4, 1)], 0.5)
    assert estimate == pytest.approx(belief.variance, abs=1e-12)
