from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from heedful.algorithms.table import ALGORITHMS
from heedful.models.forward.token_logits import token_logits
from heedful.models.forward.token_scores import BLOCK_BYTES, WIDE, block_of, scores_over
from heedful.training.batch import UpdateSettings
from heedful.training.learner import Learner
from heedful.training.objective import scores_of
from heedful.training.settings import OptimizerConfig
from heedful.types import TrainingSample
from tiny_models import narrow


def states_and_head() -> tuple[torch.Tensor, torch.nn.Linear, torch.Tensor]:
    torch.manual_seed(0)
    head = torch.nn.Linear(6, 40, bias=False).double()
    return torch.randn(11, 6, dtype=torch.float64), head, torch.randint(0, 40, (11,))


@pytest.mark.parametrize("block", [3, 11, 100])
@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_and_their_gradients_are_those_of_whole_logits(
    block: int, with_entropy: bool, temperature: float
) -> None:
    states_ND, head, targets_N = states_and_head()
    found = []
    for blocks in (False, True):
        head.zero_grad()
        states = states_ND.clone().requires_grad_()
        if blocks:
            scores_NK = scores_over(targets_N, temperature, with_entropy, block)(states, head)
        else:
            logprobs_NV = (head(states) / temperature).log_softmax(-1)
            columns = [logprobs_NV.gather(1, targets_N[:, None])[:, 0], -(logprobs_NV.exp() * logprobs_NV).sum(-1)]
            scores_NK = torch.stack(columns[: 1 + with_entropy], dim=1)
        (scores_NK * torch.arange(1.0, scores_NK.numel() + 1).reshape(scores_NK.shape)).sum().backward()
        found.append((scores_NK.detach(), states.grad, head.weight.grad))
    for plain, blocked in zip(*found, strict=True):
        assert plain is not None
        assert blocked is not None
        assert torch.allclose(plain, blocked, atol=1e-12)


def test_an_impossible_token_adds_nothing_and_passes_no_gradient() -> None:
    logits_NV = torch.tensor([[0.0, 1.0, -torch.inf]], requires_grad=True)
    scores_NK = scores_over(torch.tensor([1]), 1.0, True, 512)(logits_NV, lambda logits: logits)
    expected = torch.distributions.Categorical(logits=torch.tensor([0.0, 1.0]))
    assert scores_NK.tolist()[0] == pytest.approx([float(expected.logits[1]), float(expected.entropy())], abs=1e-6)
    scores_NK.sum().backward()
    assert logits_NV.grad is not None
    assert logits_NV.grad[0, 2] == 0
    assert logits_NV.grad.isfinite().all()


def test_blocks_keep_no_logits_for_the_backward_pass() -> None:
    states_ND, head, targets_N = states_and_head()
    largest = []
    for block in (4, 11):
        kept: list[int] = []

        def keep(tensor: torch.Tensor, kept: list[int] = kept) -> torch.Tensor:
            kept.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            scores_over(targets_N, 1.0, True, block)(states_ND.clone().requires_grad_(), head)
        largest.append(max(kept, default=0))
    assert largest[0] < 4 * 40
    assert largest[1] == 11 * 40


def test_a_block_of_any_vocabulary_takes_64_megabytes_at_most() -> None:
    assert (block_of(262_144), block_of(49_152), block_of(BLOCK_BYTES)) == (64, 341, 1)


def wide_samples() -> list[TrainingSample]:
    ids = [tuple((7 * member + 3 * place) % WIDE for place in range(10 + member)) for member in range(4)]
    trained = [(False,) * 4 + (True,) * (len(one) - 4) for one in ids]
    return [
        TrainingSample(
            ids=one,
            trained=flags,
            logprobs=tuple(-9.0 if flag else 0.0 for flag in flags),
            advantages=tuple((-1.0) ** member if flag else 0.0 for flag in flags),
            group=0,
            member=member,
            weight=1.0,
        )
        for member, (one, flags) in enumerate(zip(ids, trained, strict=True))
    ]


@pytest.mark.parametrize("recompute", [False, True])
def test_the_update_of_a_wide_vocabulary_is_that_of_whole_logits(
    monkeypatch: pytest.MonkeyPatch, recompute: bool
) -> None:
    algorithm = replace(ALGORITHMS["grpo"](), kl=0.3, entropy=0.05)
    settings = UpdateSettings(temperature=0.9, recompute=recompute)
    found = []
    for threshold, block in ((WIDE + 1, 512), (WIDE, 512), (WIDE, 5)):
        monkeypatch.setattr("heedful.training.learner.WIDE", threshold)
        monkeypatch.setattr("heedful.training.learner.scores_over", blocks_of(block))
        model = narrow(WIDE)
        learner = Learner(model, algorithm, OptimizerConfig(), settings, reference=narrow(WIDE, seed=1))
        reading = learner.accumulate_gradient(wide_samples(), token_budget=20)
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]
        found.append((reading.loss, reading.mean_entropy, gradient))
    for loss, entropy, gradient in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-9)
        assert entropy == pytest.approx(found[0][1], rel=1e-9)
        assert float((gradient - found[0][2]).norm() / found[0][2].norm()) < 1e-9


def blocks_of(size: int) -> Callable[..., object]:
    return lambda targets_N, temperature, with_entropy, _: scores_over(targets_N, temperature, with_entropy, size)


def test_scores_of_plain_logits_equal_those_in_blocks() -> None:
    from heedful.training.batch import cut_micro_batches

    model = narrow(WIDE)
    (batch,) = cut_micro_batches(wide_samples(), [1.0] * 4, 1000)
    rows = token_logits(model)
    plain = scores_of(rows(batch.ids_BT, batch.trained_BT), batch, True)
    targets_N = batch.ids_BT[batch.trained_BT]
    blocked_N2 = rows(batch.ids_BT, batch.trained_BT, None, scores_over(targets_N, 1.0, True, 7))
    assert plain.entropy_N is not None
    assert torch.allclose(blocked_N2, torch.stack([plain.logprobs_N, plain.entropy_N], dim=1), atol=1e-12)
