"""The same numbers as verl where verl is right, and where it is not: on values that its own functions gave."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from heedful.algorithms.table import ALGORITHMS
from heedful.protocols import CreditsMembers
from heedful.training.batch import cut_micro_batches
from heedful.training.objective import scores_of, token_terms
from heedful.types import TrainingSample

VERL = json.loads(Path(__file__).with_name("verl_values.json").read_text())
ROWS = {
    "grpo": ALGORITHMS["grpo"](),
    "dr_grpo": ALGORITHMS["dr_grpo"](),
    "dapo": replace(ALGORITHMS["grpo"](), clip_high=0.28, average="token"),
    "gspo": ALGORITHMS["gspo"](),
    "cispo": replace(ALGORITHMS["cispo"](), clip_high=0.4),
}


def samples() -> list[TrainingSample]:
    """One untrained token, then the three of each sequence; token 1 everywhere."""
    return [
        TrainingSample(
            ids=(0, 1, 1, 1),
            trained=(False, *trained),
            logprobs=(0.0, *old),
            advantages=(0.0, *(advantage if one else 0.0 for one in trained)),
            group=0,
            member=member,
            weight=1.0,
        )
        for member, (old, trained, advantage) in enumerate(
            zip(VERL["old"], VERL["trained"], VERL["loss_advantages"], strict=True)
        )
    ]


@pytest.mark.parametrize("name", list(ROWS))
def test_the_loss_and_its_gradient_are_verls(name: str) -> None:
    algorithm, rows = ROWS[name], samples()
    weights = algorithm.token_weights([sum(row.trained) for row in rows], [1.0] * 3, 3)
    (batch,) = cut_micro_batches(rows, weights, 1000)
    new_BT = torch.tensor(VERL["new"], dtype=torch.float64, requires_grad=True)
    new_N = new_BT[torch.tensor(VERL["trained"])]
    logits_NV = torch.stack([torch.log1p(-new_N.exp()), new_N], dim=-1)  # token 1 has just this log-probability
    loss = token_terms(algorithm, batch, scores_of(logits_NV, batch, False)).loss(0.0, 0.0)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(VERL["losses"][name]["loss"], rel=1e-6)
    assert new_BT.grad is not None
    expected = torch.tensor(VERL["losses"][name]["gradient"], dtype=torch.float64)
    assert torch.allclose(new_BT.grad, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_the_advantages_are_verls_but_for_its_epsilon(name: str) -> None:
    given = ALGORITHMS[name]().advantage(VERL["rewards"])
    assert given == pytest.approx(VERL["advantages"][name], rel=1e-5)


def test_a_constant_group_earns_nothing_here_and_something_in_verl() -> None:
    case = VERL["constant_group"]
    assert case["advantage"] > 0.3
    for row in ALGORITHMS.values():
        estimator = row().advantage
        if isinstance(estimator, CreditsMembers):
            assert estimator([case["reward"]] * case["size"]) == [0.0] * case["size"]
