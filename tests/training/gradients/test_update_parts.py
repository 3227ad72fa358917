"""The parts of an update on policies whose expectations are known: against finite differences, and sampled."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from enumerated import SIX, Enumerated, batch_of, gradient_of_rows  # noqa: E402

from heedful.algorithms.table import Algorithm  # noqa: E402
from heedful.training.gradients.adamw import AdamWStep, product  # noqa: E402
from heedful.training.gradients.parts import Weighing, pulls  # noqa: E402
from heedful.training.gradients.readings import READINGS, Sampled  # noqa: E402
from heedful.training.objective import Scores, at_trained  # noqa: E402

POLICIES = 12
LR, BETA, OTHER, EPS, MOST, STEPS, DECAY = 0.05, 0.9, 0.95, 1e-8, 0.5, 7, 0.1
ROWS = [
    Algorithm(kl=0.3, entropy=0.2),
    Algorithm(kl=0.3, entropy=0.2, kl_kind="k3", clip_low=0.02, clip_high=0.02),
    Algorithm(kl=0.3, entropy=0.2, surrogate="weight", clip_low=0.02, clip_high=0.02),
    Algorithm(kl=0.3, entropy=0.2, ratio="sequence", clip_low=0.02, clip_high=0.02),
]


def losses_by_hand(row: Algorithm, given: dict[str, Any], logprobs_N: Any, entropy_N: Any) -> dict[str, Any]:
    """The terms of the loss as the design states them, without heedful's own surrogate."""
    count = len(logprobs_N)
    ratios_N = (logprobs_N - given["before_N"]).exp()
    bounded_N = ratios_N.clamp(1 - row.clip_low, 1 + row.clip_high)
    advantages_N = sum(given["advantages"].values())
    if row.surrogate == "clip":
        found = {name: -ratios_N * one for name, one in given["advantages"].items()}
        whole_N = -torch.minimum(ratios_N * advantages_N, bounded_N * advantages_N)
    else:
        found = {name: -ratios_N.detach() * one * logprobs_N for name, one in given["advantages"].items()}
        whole_N = -bounded_N.detach() * advantages_N * logprobs_N
    found["clip"] = whole_N - sum(found.values())
    if given["importance_N"] is not None:
        found["importance"] = (given["importance_N"] - 1) * whole_N
    difference_N = logprobs_N - given["reference_N"]
    found["kl"] = row.kl * (difference_N**2 / 2 if row.kl_kind == "k2" else (-difference_N).exp() - 1 + difference_N)
    found["entropy"] = -row.entropy * entropy_N
    return {name: one.sum() / count for name, one in found.items()}


def step_by_hand(gradient_W: Any, whole_W: Any, moments: Any, plain: bool) -> Any:
    """One term's part of the step, as AdamW's formula has it."""
    if plain:
        return -LR * gradient_W
    first_W, second_W = moments
    clip = min(1.0, MOST / (float(whole_W.norm()) + 1e-6))
    second_W = OTHER * second_W + (1 - OTHER) * (clip * whole_W) ** 2
    metric_W = LR / (1 - BETA**STEPS) / ((second_W / (1 - OTHER**STEPS)).sqrt() + EPS)
    return -metric_W * (BETA * first_W + (1 - BETA) * clip * gradient_W)


@pytest.mark.parametrize("seed", range(POLICIES))
def test_every_part_of_an_enumerated_policy_is_its_finite_difference(seed: int) -> None:
    draw = torch.Generator().manual_seed(100 + seed)
    policy, row, plain, off_policy = Enumerated.drawn(seed), ROWS[seed % 4], seed % 2 == 1, seed >= 4

    def some(*size: int) -> Any:
        return torch.randn(*size, generator=draw, dtype=torch.float64)

    weights_W, count = 0.5 * some(20), 24
    prompts_B = torch.randint(0, 4, (count,), generator=draw)
    logprobs_NZ = policy.logprobs_NZ(weights_W)
    thoughts_B = torch.multinomial(logprobs_NZ.exp()[prompts_B], 1, generator=draw)[:, 0]
    own_N = logprobs_NZ[prompts_B, thoughts_B]
    before_N = (own_N + (0.05 * some(count) if off_policy else 0.0)).float().double()
    advantages = {"solved_varied": some(count).float().double(), "fluency_constant": some(count).float().double()}
    importance_N = (0.5 + torch.rand(count, generator=draw, dtype=torch.float64)) if seed >= 8 else None
    given = {
        "before_N": before_N,
        "advantages": advantages,
        "importance_N": importance_N,
        "reference_N": own_N + 0.3 * some(count),
    }

    def scores(leaf_W: Any) -> Scores:
        found_NZ = policy.logprobs_NZ(leaf_W)
        entropy_N = -(found_NZ.exp() * found_NZ).sum(-1)
        return Scores(found_NZ[prompts_B, thoughts_B], entropy_N[prompts_B])

    # heedful: pulls of each term, its gradient, its part of the step.
    whole_N = advantages["solved_varied"] + advantages["fluency_constant"]
    batch = batch_of(prompts_B.tolist(), thoughts_B.tolist(), before_N.tolist(), whole_N.tolist())
    batch = replace(batch, logprobs_BT=batch.logprobs_BT.double(), weights_B=batch.weights_B.double())
    batch.logprobs_BT[:, 1], batch.weights_B[:] = before_N, 1 / count
    batch = replace(batch, advantages_BT=batch.advantages_BT.double())
    batch.advantages_BT[:, 1] = whole_N
    assert torch.equal(at_trained(batch.advantages_BT, batch), whole_N)
    leaf_W = weights_W.clone().requires_grad_()
    known = {"reference_N": given["reference_N"], "importance_N": importance_N, "learner_N": None}
    found = pulls(row, Weighing(row.kl, row.entropy), batch, scores(leaf_W), advantages, **known)
    gradients = {
        name: torch.autograd.grad(pull.along(*scores(leaf_W)).sum(), leaf_W)[0] for name, pull in found.items()
    }
    whole_W = sum(gradients.values())
    moments = None if plain else (0.1 * some(20), 0.1 * some(20) ** 2)
    step = AdamWStep(
        [torch.full((20,), LR, dtype=torch.float64)], [torch.zeros(20, dtype=torch.float64)], 0.0, 1.0, 0.0
    )
    if moments is not None:
        parameter = torch.nn.Parameter(weights_W.clone())
        optimizer = torch.optim.AdamW([parameter], lr=LR, betas=(BETA, OTHER), eps=EPS, weight_decay=DECAY)
        optimizer.state[parameter] = {
            "step": torch.tensor(STEPS - 1.0),
            "exp_avg": moments[0].clone(),
            "exp_avg_sq": moments[1].clone(),
        }
        step = AdamWStep.ahead(optimizer, [parameter], [whole_W], LR, MOST)
        # The parts add up to the step that torch takes.
        parameter.grad = whole_W.clone()
        torch.nn.utils.clip_grad_norm_([parameter], MOST)
        optimizer.step()
        taken = step.step(step.moved([whole_W]))[0] + step.step(step.carried())[0] + step.decay([weights_W])[0]
        assert float((parameter.detach() - weights_W - taken).norm()) < 1e-12 * float(taken.norm() + 1)
    at = {name: policy.listed(weights_W, name) for name in SIX}
    mine = {
        (name, term): product([policy.gradient(reading, at[name], weights_W)], step.step(step.moved([gradient_W])))
        for name, reading in SIX.items()
        for term, gradient_W in gradients.items()
    }

    # By hand: the terms' gradients, the step, finite differences of the reading.
    terms = losses_by_hand(row, given, *scores(leaf_W))
    by_hand = {name: torch.autograd.grad(one, leaf_W, retain_graph=True)[0] for name, one in terms.items()}
    zero = (torch.zeros(20, dtype=torch.float64), moments[1]) if moments else None
    expected = {
        (name, term): policy.slope(name, weights_W, step_W) if float(step_W.norm()) else 0.0
        for name in SIX
        for term, gradient_W in by_hand.items()
        for step_W in [step_by_hand(gradient_W, sum(by_hand.values()), zero, plain)]
    }
    assert mine.keys() == expected.keys()
    for name in SIX:
        largest = max(abs(expected[key]) for key in expected if key[0] == name)
        worst = max(abs(mine[key] - expected[key]) for key in expected if key[0] == name)
        assert worst < 2e-9 * largest, (name, worst / largest)


def estimates(name: str, path: bool, batches: int = 200) -> tuple[Any, Any]:
    """Estimates of a reading's slope along one step from 6 sampled thoughts per prompt, and the truth."""
    policy, draw = Enumerated.drawn(4), torch.Generator().manual_seed(8)
    policy = replace(policy, shares_N=np.full(4, 0.25))
    weights_W = 0.7 * torch.randn(20, generator=draw, dtype=torch.float64)
    step_W = 0.1 * torch.randn(20, generator=draw, dtype=torch.float64)
    logprobs_NZ = policy.logprobs_NZ(weights_W)
    found = []
    for _ in range(batches):
        thought_M = torch.multinomial(logprobs_NZ.exp(), 6, replacement=True, generator=draw).flatten().numpy()
        own_M = np.repeat(np.arange(4), 6)
        scores_MN = logprobs_NZ[:, thought_M].T.numpy()
        nothing = np.zeros(len(own_M))
        answers = policy.answers(weights_W, own_M, thought_M)
        at = Sampled(scores_MN, own_M, policy.shares_N, nothing, nothing, answers=answers)
        leaf_W = weights_W.clone().requires_grad_()
        terms = policy.logprobs_NZ(leaf_W), policy.actions_MNA(leaf_W, thought_M)
        gradient_W = gradient_of_rows(READINGS[name], at, *terms, thought_M, leaf_W, path)
        found.append(float(gradient_W @ step_W))
    return np.array(found), policy.slope(name, weights_W, step_W)


def errors_off(name: str, path: bool) -> float:
    found, truth = estimates(name, path)
    return abs(float(found.mean()) - truth) / (float(found.std(ddof=1)) / math.sqrt(len(found)))


@pytest.mark.parametrize("name", ["gap", "right_by_thought"])
def test_the_estimate_of_a_slope_is_unbiased_with_the_pathwise_part_and_biased_without(name: str) -> None:
    assert errors_off(name, path=True) < 4.5
    assert errors_off(name, path=False) > 4.5
