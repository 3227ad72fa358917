"""Gradients of single trajectories: of their log-probabilities, of the KL penalty, of the entropy bonus.

A gradient is kept whole, or as a count sketch: few numbers whose inner products are right on average. The same seed
gives the same sketch.

Promise: no optimizer, no `.grad`, no generator is touched; what the parts of a loss add up to is the gradient that the
learner would descend from samples of the policy itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import torch

from heedful.algorithms import losses
from heedful.algorithms.table import Algorithm
from heedful.models.forward.token_logits import TokenLogits, token_logits
from heedful.protocols import CreditsTurns
from heedful.seeds import derive
from heedful.training.batch import MicroBatch, cut_micro_batches
from heedful.training.objective import picked
from heedful.training.samples import Row
from heedful.types import TrainingSample

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_CHUNK = 1 << 14
"""Numbers of each vector that are summed in float32; the sums of chunks are added in float64."""

Kind = Literal["score", "own", "kl", "entropy"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a trajectory's gradient: of all its tokens, or of those that share an advantage."""

    kind: Kind
    """score: of the sum of log-probabilities; own: of the same, each token times its advantage; kl and entropy: of the
    penalty with coefficient 1, and of minus the entropy. All under the loss's own averaging."""
    member: int
    turns: Mapping[int, int]
    """Turn -> its tokens in this piece."""
    vector: torch.Tensor


class TrajectoryGradients:
    """Reads a model and, for the KL penalty, its reference."""

    def __init__(
        self,
        model: PreTrainedModel,
        reference: PreTrainedModel | TokenLogits,
        algorithm: Algorithm,
        *,
        temperature: float,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model = model
        self.algorithm = algorithm
        self.temperature = temperature
        self.device = device
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._token_logits = token_logits(model)
        if isinstance(reference, torch.nn.Module):
            reference.to(device).eval()
            self._reference_logits = token_logits(cast("PreTrainedModel", reference))
        else:
            self._reference_logits = cast("TokenLogits", reference)

    def units(
        self,
        rows: Sequence[Row],
        scale: float,
        projection: Projection,
        advantages: Sequence[Sequence[float]] | None = None,
    ) -> list[Unit]:
        """The pieces of one trajectory, given its rows; every token counts `scale`.

        `advantages`: one per token of each row, for estimators that give them so; then there is a unit `own`. Under
        estimators that give credit per turn there is a unit `score` for each turn.
        """
        sums: dict[tuple[Kind, object], list[torch.Tensor]] = {}
        turns: dict[tuple[Kind, object], dict[int, int]] = {}
        for number, row in enumerate(rows):
            terms = self._terms(number, row, scale, None if advantages is None else advantages[number])
            for place, (name, (term, counted)) in enumerate(terms.items(), start=1):
                gradients = torch.autograd.grad(
                    term, self.parameters, retain_graph=place < len(terms), materialize_grads=True
                )
                before = sums.get(name)
                sums[name] = list(gradients) if before is None else list(map(torch.add, before, gradients))
                known = turns.setdefault(name, {})
                for turn, count in counted.items():
                    known[turn] = known.get(turn, 0) + count
        return [Unit(name[0], rows[0].member, turns[name], projection(tensors)) for name, tensors in sums.items()]

    def _terms(
        self, number: int, row: Row, scale: float, advantages_T: Sequence[float] | None
    ) -> dict[tuple[Kind, object], tuple[torch.Tensor, dict[int, int]]]:
        """What is differentiated of one row: name -> the sum over tokens, and the number of its tokens by turn."""
        trained = TrainingSample(row.ids, row.trained, row.logprobs, row.logprobs, row.group, row.member, 1.0)
        (batch,) = cut_micro_batches([trained], [1.0], len(row.ids), self.device)
        logits_NV = self._logits(batch)
        logprobs_N = picked(logits_NV, batch)
        turns = [turn for turn in row.turns if turn >= 0]
        counted = {turn: turns.count(turn) for turn in sorted(set(turns))}
        terms: dict[tuple[Kind, object], tuple[torch.Tensor, dict[int, int]]] = {}
        for key, among in self._pieces(number, counted).items():
            inside_N = logprobs_N.new_tensor([turn in among for turn in turns])
            terms["score", key] = scale * (inside_N * logprobs_N).sum(), {turn: counted[turn] for turn in among}
        if advantages_T is not None:
            credit_N = logprobs_N.new_tensor(
                [advantage for advantage, turn in zip(advantages_T, row.turns, strict=True) if turn >= 0]
            )
            if self.algorithm.ratio == "sequence":
                credit_N = credit_N.mean().expand_as(credit_N)  # one ratio for all tokens: each pulls with the mean
            terms["own", None] = scale * (credit_N * logprobs_N).sum(), counted
        with torch.no_grad():
            reference_N = picked(self._logits(batch, of_reference=True), batch)
        kl_N = losses.kl(self.algorithm.kl_kind, logprobs_N, reference_N)
        terms["kl", None] = scale * kl_N.sum(), counted
        terms["entropy", None] = -scale * losses.entropy(logits_NV).sum(), counted
        return terms

    def _pieces(self, number: int, counted: Mapping[int, int]) -> dict[object, tuple[int, ...]]:
        """The units `score` of row `number`, by name, with their turns."""
        if not isinstance(self.algorithm.advantage, CreditsTurns):
            return {None: tuple(counted)}
        if self.algorithm.ratio == "sequence":  # one ratio for all tokens of a row: they share the mean advantage
            return {number: tuple(counted)}
        return {(number, turn): (turn,) for turn in counted}

    def _logits(self, batch: MicroBatch, of_reference: bool = False) -> torch.Tensor:
        rows = self._reference_logits if of_reference else self._token_logits
        logits_NV = rows(batch.ids_BT, batch.trained_BT)
        return logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)) / self.temperature


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
