"""Gradients kept whole or as sketches."""

import pytest
import torch

from heedful.training.gradients.trajectory_gradients import Projection, dimensions_within, inner_products

SIZES = [300, 1, 99]


def pieces(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for size in SIZES]


def test_whole_vectors_are_the_tensors_one_after_the_other() -> None:
    kept = Projection([4, 2])([torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([5.0, 6.0])])
    assert kept.tolist() == [1, 2, 3, 4, 5, 6]


def test_inner_products_of_sketches_are_unbiased_with_the_stated_spread() -> None:
    one, other = pieces(1), pieces(2)
    other = [0.3 * a + b for a, b in zip(one, other, strict=True)]
    exact = float(torch.cat(one) @ torch.cat(other))
    lengths = float(torch.cat(one).norm() * torch.cat(other).norm())
    found = []
    for seed in range(400):
        projection = Projection(SIZES, 32, seed=seed)
        found.append(float(projection(one) @ projection(other)))
    products = torch.tensor(found)
    spread = lengths * (2 / 32) ** 0.5
    assert float(products.std()) < 1.1 * spread
    assert abs(float(products.mean()) - exact) < 4 * float(products.std()) / 20  # 4 standard errors of 400 draws


def test_a_sketch_is_linear_and_the_same_for_the_same_seed() -> None:
    one, other = pieces(1), pieces(2)
    projection = Projection(SIZES, 64, seed=7)
    both = projection([2 * a - b for a, b in zip(one, other, strict=True)])
    torch.testing.assert_close(both, 2 * projection(one) - projection(other), atol=1e-5, rtol=1e-5)
    assert torch.equal(Projection(SIZES, 64, seed=7)(one), projection(one))
    assert not torch.equal(Projection(SIZES, 64, seed=8)(one), projection(one))


def test_inner_products_are_those_of_float64_to_rounding_over_several_chunks() -> None:
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(2, 200_001, generator=generator)
    other = torch.randn(3, 200_001, generator=generator)
    found = inner_products(one, other)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, one.double() @ other.double().T, rtol=0, atol=1e-6 * 200_001**0.5 * 10)


def test_vectors_are_kept_whole_where_they_fit_and_projected_to_a_power_of_two_where_not() -> None:
    assert dimensions_within(whole=2**18, vectors=1, memory_mb=1) is None
    assert dimensions_within(whole=2**18 + 1, vectors=1, memory_mb=1) == 2**18
    assert dimensions_within(whole=10**6, vectors=3, memory_mb=1) == 2**16
    with pytest.raises(ValueError, match=r"found 1 MB .* allow 4 MB or more, or measure fewer groups"):
        dimensions_within(whole=10**6, vectors=1000, memory_mb=1)
