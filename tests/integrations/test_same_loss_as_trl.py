"""The same loss as TRL's own function gives on the same log-probabilities."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("trl")

from trl import GRPOTrainer

from heedful.algorithms.table import ALGORITHMS, Algorithm
from heedful.training.batch import cut_micro_batches
from heedful.training.objective import scores_of, token_terms
from heedful.types import TrainingSample

OLD = torch.tensor([[-1.0, -0.5, -2.0], [-0.7, -1.5, -0.2], [-0.9, -0.4, -1.1]], dtype=torch.float64)
NEW = torch.tensor([[-0.6, -0.55, -2.5], [-0.7, -1.0, -0.25], [-1.6, -0.3, -1.0]], dtype=torch.float64)
REFERENCE = torch.tensor([[-0.8, -0.5, -2.1], [-0.9, -1.2, -0.3], [-1.2, -0.2, -1.4]], dtype=torch.float64)
TRAINED = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 1, 0]])
ADVANTAGES = (1.0, -0.8, 0.6)
ENTROPY = 0.4
"""Of every token, in TRL's half; ours computes the entropy itself, so the bonus is compared elsewhere."""


def trl_loss(settings: dict[str, Any], beta: float) -> tuple[float, torch.Tensor]:
    """TRL's loss of the batch and its gradient by log-probabilities; prompt and model are not looked at."""
    new = NEW.clone().requires_grad_()
    settings = {"importance_sampling_level": "token", "epsilon_low": 0.2, "epsilon_high": 0.2, **settings}
    trainer = SimpleNamespace(
        **settings,
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (new, torch.full_like(new, ENTROPY), None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        beta=beta,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        use_vllm=False,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=3,
        accelerator=SimpleNamespace(
            num_processes=1, gather=lambda tensor: tensor, reduce=lambda tensor, reduction: tensor
        ),
        _entropy_bonus_enabled=False,
        _metrics={"train": _Anything()},
        _total_train_tokens=0,
    )
    ids = torch.zeros(3, 3, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1] + 1,
        "completion_ids": ids,
        "completion_mask": TRAINED,
        "advantages": torch.tensor(ADVANTAGES, dtype=torch.float64),
        "old_per_token_logps": OLD,
        "ref_per_token_logps": REFERENCE,
        "num_items_in_batch": TRAINED.sum(),
    }
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    (gradient,) = torch.autograd.grad(loss, new)
    return float(loss.detach()), gradient


class _Anything(dict[str, list[float]]):
    def __missing__(self, name: str) -> list[float]:
        return self.setdefault(name, [])


def our_loss(algorithm: Algorithm) -> tuple[float, torch.Tensor]:
    rows = [
        TrainingSample(
            ids=(0, 1, 1, 1),
            trained=(False, *map(bool, TRAINED[member].tolist())),
            logprobs=(0.0, *OLD[member].tolist()),
            advantages=(0.0, *([ADVANTAGES[member]] * 3)),
            group=0,
            member=member,
            weight=1.0,
        )
        for member in range(3)
    ]
    (batch,) = cut_micro_batches(rows, algorithm.token_weights(TRAINED.sum(1).tolist(), [1.0] * 3, 3), 1000)
    new = NEW.clone().requires_grad_()
    new_N = new[TRAINED.bool()]
    logits_NV = torch.stack([torch.log1p(-new_N.exp()), new_N], dim=-1)
    terms = token_terms(algorithm, batch, scores_of(logits_NV, batch, False), reference_N=REFERENCE[TRAINED.bool()])
    loss = terms.loss(algorithm.kl, 0.0)
    (gradient,) = torch.autograd.grad(loss, new)
    return float(loss.detach()), gradient


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        (ALGORITHMS["grpo"](), {"loss_type": "grpo"}),
        (ALGORITHMS["dr_grpo"](), {"loss_type": "dr_grpo"}),
        (replace(ALGORITHMS["grpo"](), clip_high=0.28, average="token"), {"loss_type": "dapo", "epsilon_high": 0.28}),
        (
            ALGORITHMS["gspo"](),
            {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4},
        ),
        (ALGORITHMS["cispo"](), {"loss_type": "cispo", "epsilon_high": 5.0}),
    ],
    ids=["grpo", "dr_grpo", "dapo", "gspo", "cispo"],
)
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_loss_and_its_gradient_are_trls(row: Algorithm, settings: dict[str, Any], beta: float) -> None:
    loss, gradient = our_loss(replace(row, kl=beta, kl_kind="k3"))
    expected, expected_gradient = trl_loss(settings, beta)
    assert loss == pytest.approx(expected, rel=1e-6)
    assert torch.allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-9)
