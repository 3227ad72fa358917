"""Long gradients, kept whole or as a count sketch: few numbers whose inner products are right on average.

Promise: the same seed gives the same sketch; inner products of sketches are unbiased, and those of whole vectors exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from heedful.seeds import derive

_CHUNK = 1 << 14
"""Numbers of each vector that are summed in float32; the sums of chunks are added in float64."""


class Projection:
    """Tensors of fixed sizes in, one flat float32 vector on the CPU out.

    As a sketch each of the D numbers is added, with a random sign, to one of `dimensions` places drawn for it
    (Charikar et al. 2002; as an embedding Weinberger et al. 2009, arXiv:0902.2206). Over the draw, the inner product of
    the sketches of u and v has the expectation u v and a standard deviation of at most sqrt(2 / dimensions) |u| |v|.
    """

    def __init__(
        self, sizes: Sequence[int], dimensions: int | None = None, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        """`sizes`: the numbers of each tensor. `dimensions`: of the sketch; `None` = whole vectors."""
        self.dimensions = dimensions
        self.length = sum(sizes) if dimensions is None else dimensions
        self._places: list[torch.Tensor] = []
        self._signs: list[torch.Tensor] = []
        for number, size in enumerate(sizes if dimensions is not None else ()):
            # On the CPU, so that a seed means the same sketch on every device.
            generator = torch.Generator().manual_seed(derive(seed, "sketch", number))
            places = torch.randint(0, self.length, (size,), generator=generator, dtype=torch.int32)
            signs = torch.randint(0, 2, (size,), generator=generator, dtype=torch.int8) * 2 - 1
            self._places.append(places.to(device))
            self._signs.append(signs.to(device))

    def __call__(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        flat = [tensor.detach().reshape(-1).float() for tensor in tensors]
        if self.dimensions is None:
            return torch.cat(flat).cpu()
        sketch = flat[0].new_zeros(self.length)
        for values, places, signs in zip(flat, self._places, self._signs, strict=True):
            sketch.index_add_(0, places, values * signs)
        return sketch.cpu()


def dimensions_within(whole: int, vectors: int, memory_mb: int) -> int | None:
    """The length of a sketch of which `vectors` fit into `memory_mb`; `None` where vectors of `whole` numbers do.

    Raises ValueError where not even a sketch of 1,024 numbers fits.
    """
    room = memory_mb * 2**20 // (4 * vectors)
    if room >= whole:
        return None
    if room < 1024:
        raise ValueError(
            f"Expected room for {vectors} gradients, of at least 1,024 numbers each as a sketch, found {memory_mb} MB "
            f"(--memory-mb): allow {-(-4 * vectors * 1024 // 2**20)} MB or more, or measure fewer groups."
        )
    return 1 << (room.bit_length() - 1)


def inner_products(one_MD: torch.Tensor, other_ND: torch.Tensor) -> torch.Tensor:
    """All inner products, float64 `[M, N]`; chunks are added in float64: a signal is a small difference of them."""
    products_MN = torch.zeros(len(one_MD), len(other_ND), dtype=torch.float64)
    for start in range(0, one_MD.shape[1], _CHUNK):
        piece = slice(start, start + _CHUNK)
        products_MN += one_MD[:, piece] @ other_ND[:, piece].T
    return products_MN
