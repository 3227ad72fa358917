import math

import pytest
import torch

from heedful.algorithms.losses import clipped, entropy, kl, over_sequences, weighted
from heedful.algorithms.table import KlKind

LOGITS = torch.tensor([0.3, -1.2, 0.9, 0.1], dtype=torch.float64)
REFERENCE = torch.tensor([-0.4, 0.5, 0.2, 1.1], dtype=torch.float64).log_softmax(-1)


def exact_gradient(loss_of_each_token: object) -> torch.Tensor:
    """The expectation, over tokens sampled by the policy, of the gradient of a loss per token."""
    logits = LOGITS.clone().requires_grad_()
    logprobs = logits.log_softmax(-1)
    (logprobs.detach().exp() * loss_of_each_token(logprobs)).sum().backward()  # type: ignore[operator]
    assert logits.grad is not None
    return logits.grad


def analytic_gradient(divergence: object) -> torch.Tensor:
    logits = LOGITS.clone().requires_grad_()
    divergence(logits.log_softmax(-1)).backward()  # type: ignore[operator]
    assert logits.grad is not None
    return logits.grad


def kl_to_reference(logprobs: torch.Tensor) -> torch.Tensor:
    return (logprobs.exp() * (logprobs - REFERENCE)).sum()


def kl_from_reference(logprobs: torch.Tensor) -> torch.Tensor:
    return (REFERENCE.exp() * (REFERENCE - logprobs)).sum()


def test_the_clipped_loss_of_three_tokens_by_hand() -> None:
    logprobs = torch.tensor([1.5, 0.5, 1.0]).log()
    loss, clip_binds = clipped(logprobs, torch.tensor([1.0, -1.0, 2.0]), 0.2, 0.28)
    # A > 0: min(1.5, 1.28); A < 0: min(-0.5, -0.8); ratio 1: untouched
    assert loss.tolist() == pytest.approx([-1.28, 0.8, -2.0])
    assert clip_binds.tolist() == [True, True, False]


def test_the_clip_never_binds_where_it_would_hide_a_worsening() -> None:
    logprobs = torch.tensor([1.5, 0.5]).log()
    loss, clip_binds = clipped(logprobs, torch.tensor([-1.0, 1.0]), 0.2, 0.2)
    assert loss.tolist() == pytest.approx([1.5, -0.5])
    assert clip_binds.tolist() == [False, False]


def test_a_token_whose_clip_binds_passes_no_gradient() -> None:
    logprobs = torch.tensor([1.5, 0.5, 1.0]).log().requires_grad_()
    clipped(logprobs, torch.tensor([1.0, -1.0, 2.0]), 0.2, 0.2).loss.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, 0.0, -2.0])


def test_on_policy_the_clipped_loss_has_the_policy_gradient() -> None:
    logprobs = torch.tensor([-0.7, -1.1, -2.0], requires_grad=True)
    advantages = torch.tensor([0.5, -1.5, 0.0])
    clipped(logprobs - logprobs.detach(), advantages, 0.2, 0.2).loss.sum().backward()
    assert torch.equal(logprobs.grad, -advantages)


def test_the_weighted_loss_of_three_tokens_by_hand() -> None:
    logprobs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    log_ratios = torch.tensor([1.5, 6.0, 0.5]).log()
    loss, clip_binds = weighted(log_ratios, logprobs, torch.tensor([1.0, 1.0, -2.0]), 1.0, 4.0)
    assert loss.tolist() == pytest.approx([1.5, 10.0, -0.5])
    assert clip_binds.tolist() == [False, True, False]
    loss.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-1.5, -5.0, 1.0])  # a clipped token still passes a gradient


def test_the_ratio_of_a_sequence_is_the_geometric_mean_of_its_tokens_by_hand() -> None:
    log_ratios = torch.tensor([0.2, 0.4, -0.6], requires_grad=True)
    spread = over_sequences(log_ratios, torch.tensor([0, 0, 2]))
    assert spread.tolist() == pytest.approx([0.3, 0.3, -0.6])
    clipped(spread, torch.tensor([1.0, 1.0, 1.0]), 0.9, 0.9).loss.sum().backward()
    assert log_ratios.grad is not None
    # Two tokens share one ratio: each passes half of twice its slope.
    assert log_ratios.grad.tolist() == pytest.approx([-math.exp(0.3), -math.exp(0.3), -math.exp(-0.6)])
    assert over_sequences(torch.zeros(0), torch.zeros(0, dtype=torch.long)).tolist() == []


def test_the_kl_penalties_of_three_tokens_by_hand() -> None:
    logprobs, reference = torch.tensor([0.0, -1.0, -2.0]), torch.tensor([0.0, -2.0, -1.0])
    assert kl("k2", logprobs, reference).tolist() == pytest.approx([0.0, 0.5, 0.5])
    # d = 1: 1/e - 1 + 1; d = -1: e - 1 - 1
    assert kl("k3", logprobs, reference).tolist() == pytest.approx([0.0, math.exp(-1), math.e - 2])
    assert torch.equal(kl("k3_straight", logprobs, reference), kl("k3", logprobs, reference))


@pytest.mark.parametrize("kind", ["k3", "k3_straight"])
def test_the_value_of_k3_is_unbiased_for_the_divergence(kind: KlKind) -> None:
    logprobs = LOGITS.log_softmax(-1)
    value = (logprobs.exp() * kl(kind, logprobs, REFERENCE)).sum()
    assert float(value) == pytest.approx(float(kl_to_reference(logprobs)), rel=1e-12)


@pytest.mark.parametrize("kind", ["k2", "k3_straight"])
def test_k2_and_k3_straight_descend_the_divergence_of_the_policy_from_the_reference(kind: KlKind) -> None:
    gradient = exact_gradient(lambda logprobs: kl(kind, logprobs, REFERENCE))
    torch.testing.assert_close(gradient, analytic_gradient(kl_to_reference), rtol=1e-12, atol=1e-14)


def test_k3_descends_the_divergence_of_the_reference_from_the_policy() -> None:
    gradient = exact_gradient(lambda logprobs: kl("k3", logprobs, REFERENCE))
    torch.testing.assert_close(gradient, analytic_gradient(kl_from_reference), rtol=1e-12, atol=1e-14)
    assert not torch.allclose(gradient, analytic_gradient(kl_to_reference), rtol=0.1)


def test_k1_is_no_choice_because_its_gradient_vanishes_in_expectation() -> None:
    gradient = exact_gradient(lambda logprobs: logprobs - REFERENCE)
    assert gradient.abs().max() < 1e-15


def test_the_entropy_of_three_distributions_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -math.inf, -math.inf], [50.0, 0.0, 0.0, 0.0]])
    assert entropy(logits).tolist() == pytest.approx([math.log(4), math.log(2), 0.0], abs=1e-6)
    odds = torch.tensor([0.5, 0.25, 0.25]).log() + 3.0
    assert float(entropy(odds)) == pytest.approx(1.5 * math.log(2))


def test_the_entropy_has_the_analytic_gradient_even_beside_an_impossible_token() -> None:
    logits = torch.tensor([0.2, -0.3, 1.0, -math.inf], dtype=torch.float64, requires_grad=True)
    entropy(logits).backward()
    probabilities = logits.detach().softmax(-1)[:3]
    expected = -probabilities * (probabilities.log() + entropy(logits.detach()))
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.cat([expected, torch.zeros(1, dtype=torch.float64)]))
