"""The truths of simulated studies are what very large studies find."""

import numpy as np
import pytest
from scipy.special import gamma, hyp2f1

from benchmarks.truth.correlations import Following, Layout, Shared


@pytest.mark.parametrize(
    "study",
    [
        Shared(Layout(1, 150, 12, 3), 0.8, 0.5),
        Shared(Layout(1, 600, 3, 5), 0.5, 0.0),
        Following(Layout(1, 150, 3, 60), 0.0),
        Following(Layout(1, 150, 3, 60), 1.0),
    ],
    ids=["shared", "not shared", "follows", "knows"],
)
def test_many_seeds_read_the_truth(study: Shared | Following) -> None:
    found = {metric.name: metric for metric in study.draw(np.random.default_rng(2))}
    for name, truth in study.truths().items():
        if name.endswith("of_a_seed") and study.layout.arms < 12:
            continue  # Few runs of a seed read too low: that is in the table of the page.
        assert found[name].value == pytest.approx(truth, abs=0.05), name


def test_three_runs_of_a_seed_read_towards_zero() -> None:
    study = Shared(Layout(1, 600, 3, 3), 0.8, 0.5)
    found = {metric.name: metric for metric in study.draw(np.random.default_rng(2))}
    name = "pearson/between_runs_of_a_seed"
    truth = study.truths()[name]
    assert truth == pytest.approx(0.653, abs=0.001)
    # The expected correlation of three pairs of normal values, by Hotelling's series (1953).
    expected = (gamma(1.5) / gamma(1)) ** 2 * truth * hyp2f1(0.5, 0.5, 2, truth**2)
    assert found[name].value == pytest.approx(expected, abs=0.06)
    assert expected < truth - 0.1
