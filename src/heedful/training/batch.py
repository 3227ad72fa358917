"""Samples become padded tensors, in micro-batches of bounded size.

Promise: every sample lies in exactly one micro-batch; how they are cut changes memory and speed, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from heedful.types import TrainingSample


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples padded on the right to one length."""

    ids_BT: torch.Tensor
    """int64; 0 where padded."""
    trained_BT: torch.Tensor
    """bool, True = sampled by the policy; False where padded."""
    logprobs_BT: torch.Tensor
    """float32, of the sampler; 0 where not trained."""
    advantages_BT: torch.Tensor
    """float32; 0 where not trained."""
    weights_B: torch.Tensor
    """float32: what one trained token of each sequence counts for in the loss."""


def cut_micro_batches(
    samples: Sequence[TrainingSample],
    token_weights_B: Sequence[float],
    micro_batch_tokens: int,
    device: torch.device | str = "cpu",
) -> list[MicroBatch]:
    """Sort by length, longest first, and cut so that no padded tensor exceeds `micro_batch_tokens` elements.

    Longest first: if memory does not suffice, the first micro-batch says so. A single sample longer than the bound is a
    micro-batch by itself, since it cannot be cut. Raises ValueError for a bound below 1 and for a sample whose first
    token is trained (nothing stands before it to predict it from).
    """
    if micro_batch_tokens < 1:
        raise ValueError(f"Expected micro_batch_tokens of at least 1, found {micro_batch_tokens}.")
    rows = sorted(zip(samples, token_weights_B, strict=True), key=lambda row: -len(row[0].ids))
    for sample, _ in rows:
        if sample.trained[:1] == (True,):
            raise ValueError(
                f"The first token of member {sample.member} of group {sample.group} is marked as trained, but no token "
                "stands before it to predict it from; start every prompt with at least one token."
            )
    batches = []
    start = 0
    while start < len(rows):
        size = max(1, micro_batch_tokens // max(1, len(rows[start][0].ids)))
        batches.append(_pad(rows[start : start + size], device))
        start += size
    return batches


def _pad(rows: Sequence[tuple[TrainingSample, float]], device: torch.device | str) -> MicroBatch:
    length = max(len(sample.ids) for sample, _ in rows)

    def padded(values_B: Sequence[Sequence[float]], filler: float, dtype: torch.dtype) -> torch.Tensor:
        full = [[*values, *[filler] * (length - len(values))] for values in values_B]
        return torch.tensor(full, dtype=dtype, device=device)

    return MicroBatch(
        ids_BT=padded([sample.ids for sample, _ in rows], 0, torch.int64),
        trained_BT=padded([sample.trained for sample, _ in rows], False, torch.bool),
        logprobs_BT=padded([sample.logprobs for sample, _ in rows], 0.0, torch.float32),
        advantages_BT=padded([sample.advantages for sample, _ in rows], 0.0, torch.float32),
        weights_B=torch.tensor([weight for _, weight in rows], dtype=torch.float32, device=device),
    )
