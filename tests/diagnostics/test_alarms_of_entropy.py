"""The entropy of answers: small, skewed, and noisy where it is high. What is a rise of it, and what is not."""

import numpy as np
import pytest

from heedful.diagnostics.alarms.watch import first_raised, replay
from heedful.diagnostics.statistics.intervals import cluster_interval
from heedful.types import Metric

NAME = "policy/answer_entropy_per_token"
TASKS = 16


def reading(rng, level, bursts, size=0.25):
    """Answers of 16 tasks, nearly certain but for those of a share `bursts` of the tasks.

    Calibrated on healthy runs in FrozenLake: readings of .032 have a standard error of 6%, readings of .07 one of 25%.
    """
    tasks = level * np.exp(0.2 * rng.standard_normal(TASKS) - 0.02)
    tasks += (rng.random(TASKS) < bursts) * rng.exponential(size, TASKS)
    tokens = rng.integers(70, 90, TASKS)
    low, high = cluster_interval((tasks * tokens).tolist(), tokens.tolist())
    return Metric(NAME, float(tasks @ tokens / tokens.sum()), int(tokens.sum()), max(low, 0.0), high)


def rises(run):
    """The step at which `entropy_rise` is raised; `None` where it is not."""
    steps = [(step, {NAME: metric}) for step, metric in enumerate(run)]
    found = first_raised(replay(steps)).get("entropy_rise")
    return None if found is None else found.step


def healthy(seed, steps=80):
    """Bursts become a little more frequent while the policy learns: the level goes from .03 to .06."""
    rng = np.random.default_rng([3, seed])
    return [reading(rng, 0.032, 0.1 * min(1.0, max(0.0, (step - 10) / 20))) for step in range(steps)]


def test_a_few_uncertain_answers_in_a_healthy_run_are_no_rise():
    runs = [healthy(seed) for seed in range(16)]
    doubled = [max(m.value for m in run) > 2.5 * np.median([m.value for m in run[:10]]) for run in runs]
    assert sum(doubled) > 12, "single readings do more than double"
    assert sum(rises(run) is not None for run in runs) == 0


@pytest.mark.proof
def test_400_healthy_runs_with_a_few_uncertain_answers_raise_no_entropy_rise(record_property):
    record_property("cases", 400)
    assert sum(rises(healthy(seed)) is not None for seed in range(400)) == 0


def test_next_to_nothing_that_doubles_for_good_is_no_rise():
    def run(level):
        rng = np.random.default_rng(7)
        return [reading(rng, 0.015 if step < 20 else level, 0.0) for step in range(60)]

    assert rises(run(0.04)) is None
    assert rises(run(0.08)) in range(20, 26)


@pytest.mark.parametrize(("level", "delay"), [(0.15, 4), (0.3, 2)])
def test_answers_that_are_no_longer_decided_are_found(level, delay):
    for seed in range(10):
        rng = np.random.default_rng([5, seed])
        found = rises([reading(rng, 0.035 if step < 20 else level, 0.05) for step in range(40)])
        assert found is not None
        assert 20 <= found <= 20 + delay
