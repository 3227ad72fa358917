"""Accumulation of token log-probabilities into the sums of a cross-score, in float64 for any model precision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class ScoreSums:
    """Sums of M distinct thoughts under N prompts: over all tokens, and over the first k for each k of `head_tokens`.

    `keep_tokens`: also store float32 log-probabilities of single tokens, one N x T_i array per thought.
    """

    def __init__(
        self, lengths_M: Sequence[int], prompts: int, head_tokens: Sequence[int], *, keep_tokens: bool = False
    ) -> None:
        self._cuts = (None, *head_tokens)
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
