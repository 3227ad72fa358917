"""The special functions against scipy's, on the arguments that metrics and alarms have."""

import numpy as np
import pytest
from scipy import special as textbook
from scipy.stats import rankdata

from heedful.diagnostics.gradient import trend
from heedful.diagnostics.statistics import special


def agree(found, expected):
    return found == pytest.approx(expected, rel=1e-12, abs=1e-300)


def test_student_shares_and_quantiles_are_the_textbooks():
    degrees = np.array([2 / 3, 1, 4 / 3, 2, 3, 10, 42, 100, 666.7, 5000])[:, None]
    t = -np.array([0, 0.1, 1, 2, 4.75, 8, 20, 1000, np.inf])[None, :]
    both = np.broadcast_arrays(degrees, t)
    assert agree(special.student_share(*both), textbook.stdtr(degrees, t))
    for many in (1, 1.5, 2, 4.37, 15, 255, 3333.3, 1e5):
        assert agree(special.student_quantile(many, 0.975), textbook.stdtrit(many, 0.975))


def test_normal_quantiles_are_the_textbooks():
    for share in (0.0, 1e-300, 1e-10, 0.2, 0.5, 0.975):
        assert agree(special.normal_quantile(share), textbook.ndtri(share))


def test_beta_quantiles_are_the_textbooks():
    for hits, of in ((1, 1), (1, 2), (1, 3000), (5, 8), (7, 64), (499, 500), (2999, 3000)):
        for share in (0.025, 0.975):
            assert agree(
                special.beta_quantile(hits, of - hits + 1, share), textbook.betaincinv(hits, of - hits + 1, share)
            )


def test_the_gamma_function_and_its_derivative_are_the_textbooks():
    x = np.concatenate([np.geomspace(1e-6, 1e6, 301), np.arange(1, 60) / 2])
    assert agree(special.log_gamma(x), textbook.gammaln(x))
    assert agree(special.psi(x), textbook.psi(x))
    assert agree(special.x_log_x(np.append(x, 0.0)), textbook.xlogy(np.append(x, 0.0), np.append(x, 0.0)))


def test_equal_variances_share_a_rank_as_in_the_textbook():
    rng = np.random.default_rng(0)
    variance, norm = rng.integers(0, 5, (3, 12)).astype(float), rng.random((3, 12))
    ranks = (rankdata(variance, axis=1) - 1) / 11
    slopes = [np.polyfit(rank, row, 1)[0] / row.mean() for rank, row in zip(ranks, norm, strict=True)]
    assert trend._slopes(variance, norm) == pytest.approx(slopes)
