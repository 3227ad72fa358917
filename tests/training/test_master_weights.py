"""Half-precision weights are trained through float32 copies."""

import torch

from heedful.training.optimizer_step import MasterWeights


def small_steps(dtype: torch.dtype, with_masters: bool) -> float:
    weight = torch.nn.Parameter(torch.ones(1, dtype=dtype))
    masters = MasterWeights([weight])
    optimizer = torch.optim.SGD(masters.optimized if with_masters else [weight], lr=1e-4)
    for _ in range(100):
        weight.grad = torch.ones_like(weight)
        if with_masters:
            masters.take_gradients()
        optimizer.step()
        if with_masters:
            masters.give_weights()
    return float(weight.detach())


def test_steps_below_the_spacing_of_bfloat16_add_up() -> None:
    assert small_steps(torch.bfloat16, with_masters=False) == 1.0  # what is avoided: every step is rounded away
    assert abs(small_steps(torch.bfloat16, with_masters=True) - 0.99) < 0.004


def test_float32_weights_are_optimized_in_place_without_a_copy() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    masters = MasterWeights([weight])
    assert masters.optimized[0] is weight
    assert masters.copies == []


def test_copies_can_be_saved_and_taken_back() -> None:
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    masters = MasterWeights([weight])
    masters.load_copies([torch.tensor([0.123456, -3.0])])
    masters.give_weights()
    assert masters.copies[0].tolist() == torch.tensor([0.123456, -3.0]).tolist()
    assert weight.tolist() == torch.tensor([0.123456, -3.0]).bfloat16().tolist()
