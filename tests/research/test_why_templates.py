"""What a push does to the information of thoughts: the theorem of docs/why_templates.md, on listed thoughts."""

from pathlib import Path

import numpy as np
import pytest

from research.__main__ import run
from research.causes.tabular import Setting, gap, log_softmax, mutual_information, predicted, simulate

RNG = np.random.default_rng(5)
EVEN = np.full(5, 0.2)


def policy(prompts: int = 5, thoughts: int = 9) -> np.ndarray:
    return log_softmax(2 * RNG.standard_normal((prompts, thoughts)))


def derivative(logp: np.ndarray, push: np.ndarray, shares: np.ndarray) -> tuple[float, float]:
    """Of gap and MI along the push, exact to rounding: both are analytic, so a step into the imaginary is enough."""
    step = 1e-30
    moved = logp + 1j * step * push
    moved = moved - np.log(np.exp(moved).sum(-1, keepdims=True))
    return tuple(float(np.imag(found(moved, shares))) / step for found in (gap, mutual_information))


@pytest.mark.parametrize("draw", range(12))
def test_the_theorem_gives_the_change_of_gap_and_of_information_for_any_push_and_any_shares(draw: int) -> None:
    logp, push = policy(), RNG.standard_normal((5, 9))
    shares = EVEN if draw % 2 else RNG.dirichlet(np.ones(5))
    assert predicted(logp, push, shares) == pytest.approx(derivative(logp, push, shares), abs=1e-9)


def test_a_push_that_is_the_same_on_all_prompts_has_no_pathwise_part_at_equal_shares() -> None:
    logp, push = policy(), np.tile(RNG.standard_normal(9), (5, 1))
    p = np.exp(logp)
    told = logp - (logp.sum(0)[None] - logp) / 4  # log p_i minus the mean of log p_j over the others
    covariances = (p * (push - (p * push).sum(-1, keepdims=True)) * told).sum(-1)
    assert predicted(logp, push, EVEN)[0] == pytest.approx(covariances.mean(), abs=1e-9)
    assert predicted(logp, push + 3.0, EVEN) == pytest.approx(predicted(logp, push, EVEN), abs=1e-9)


def test_favouring_a_thought_that_all_prompts_have_lowers_the_information_and_favouring_others_raises_it() -> None:
    logits = np.full((5, 6), -4.0)
    np.fill_diagonal(logits, 1.0)
    logits[:, 5] = 0.0  # the template
    logp = log_softmax(logits)
    template = np.tile(np.eye(6)[5], (5, 1))
    assert max(predicted(logp, template, EVEN)) < 0
    assert min(predicted(logp, -template, EVEN)) > 0


def test_shared_weights_make_templates_of_a_preference_that_noise_hides_on_each_prompt() -> None:
    """Prose earns .1 under noise of deviation 1. Nothing is paid for a right thought, nor for a wrong one."""
    ends = {
        (sharing, prose): float(np.mean(simulate(Setting(sharing, prose=prose, seeds=6))["templates"]))
        for sharing in ("none", "ways")
        for prose in (0.0, 0.1)
    }
    assert ends["none", 0.1] - ends["none", 0.0] < 0.1
    assert ends["ways", 0.1] - ends["ways", 0.0] > 0.3


def test_a_small_simulation_writes_its_figures(tmp_path: Path) -> None:
    assert run(["templates", "--small", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "templates.json",
        "why_templates_course.svg",
        "why_templates_prompts.svg",
    }
