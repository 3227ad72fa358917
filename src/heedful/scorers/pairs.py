"""Prompts and thoughts as every scorer reads them, and the sums of their log-probabilities. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from heedful.diagnostics.cross_scores.information import HEADS
from heedful.types import CrossScores

Ids = tuple[int, ...]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Prompts and thoughts as they are read: each distinct thought once."""

    prompts: list[Ids]
    thoughts: list[Ids]
    """All thoughts, as they were given."""
    distinct: list[Ids]
    rows_M: list[int]
    """The row of each thought in `distinct`."""

    @property
    def lengths(self) -> list[int]:
        """Tokens of each distinct thought."""
        return list(map(len, self.distinct))

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and the longest thought together."""
        return max(map(len, self.prompts)) + max(map(len, self.thoughts), default=0)


def read_pairs(prompts_N: Sequence[Sequence[int]], thoughts_M: Sequence[Sequence[int]]) -> Pairs:
    """Prompts and thoughts as plain ids."""
    prompts: list[Ids] = [tuple(map(int, ids)) for ids in prompts_N]
    thoughts: list[Ids] = [tuple(map(int, ids)) for ids in thoughts_M]
    row_of = {ids: row for row, ids in enumerate(dict.fromkeys(thoughts))}
    return Pairs(prompts, thoughts, list(row_of), [row_of[ids] for ids in thoughts])


def tokens_of_pairs(prompts: Sequence[Sequence[int]], thoughts: Sequence[Sequence[int]]) -> int:
    """The tokens of all distinct thoughts under all prompts, where each pair is a row of its own."""
    distinct = {tuple(ids) for ids in thoughts if len(ids)}
    return len(distinct) * sum(map(len, prompts)) + len(prompts) * sum(map(len, distinct))


class ScoreSums:
    """Sums of M distinct thoughts under N prompts, in float64 for any model precision.

    They go over all tokens, and over the first k for each k of `HEADS`.

    `keep_tokens`: also store float32 log-probabilities of single tokens, one N x T_i array per thought.
    """

    def __init__(self, lengths_M: Sequence[int], prompts: int, *, keep_tokens: bool = False) -> None:
        self._cuts: tuple[Any, ...] = (None, *HEADS)
        self.sums_SMN = np.zeros((len(self._cuts), len(lengths_M), prompts))
        self.tokens_MNT: list[npt.NDArray[np.float32]] | None = None
        if keep_tokens:
            self.tokens_MNT = [np.zeros((prompts, length), dtype=np.float32) for length in lengths_M]

    def add(self, rows_B: Sequence[int], columns_P: Sequence[int], logprobs_PBT: Floats) -> None:
        """Add the tokens of some thoughts under some prompts, right-padded with zeros. Add each pair only once."""
        cells = np.ix_(rows_B, columns_P)
        for sums_MN, cut in zip(self.sums_SMN, self._cuts, strict=True):
            sums_MN[cells] = logprobs_PBT[:, :, :cut].sum(axis=2).T
        if self.tokens_MNT is not None:
            for place, row in enumerate(rows_B):
                kept_NT = self.tokens_MNT[row]
                kept_NT[list(columns_P)] = logprobs_PBT[:, place, : kept_NT.shape[1]]

    def scores(self, pairs: Pairs, own_M: Sequence[int], noise: float, method: str) -> CrossScores:
        """The scores of all thoughts, as they were given."""
        whole, *heads = [cast(Sequence[Sequence[float]], sums_MN[pairs.rows_M]) for sums_MN in self.sums_SMN]
        return CrossScores(
            scores_MN=whole,
            lengths_M=list(map(len, pairs.thoughts)),
            own_M=list(own_M),
            heads=dict(zip(self._cuts[1:], heads, strict=True)),
            noise=noise,
            tokens=None if self.tokens_MNT is None else cast(Any, [self.tokens_MNT[row] for row in pairs.rows_M]),
            method=method,
        )
