"""Log-probabilities of chosen tokens from a causal language model's states, without full rows of the vocabulary.

Memory is a block of rows times a block of the vocabulary, for any number of rows and tokens. Softmax and its sums are
computed in float32 or wider.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from heedful.models.forward.exactness import body_and_head, wide
from heedful.scorers.packs import Targets

_CPU_BLOCK = (512, 2048)
"""Rows x vocabulary of one block: 4 MB in float32, which fit the caches. 1,024 rows of 256 into 32k then take 206 ms.
The matrix product alone takes 180 ms, a whole log softmax 300 to 420 (one thread)."""
_DEVICE_BLOCK = (4096, 8192)
_FUSED_COLUMNS = (1024, 8192)


class OutputHead:
    """log softmax(logits / temperature) at chosen tokens. `body` is the module that gives the states.

    If no head was found (`body_and_head`), `body` is the whole model and its states are its logits.
    """

    def __init__(self, model: PreTrainedModel, temperature: float) -> None:
        self.body, self._head = body_and_head(model)
        self._temperature = temperature
        self._rows, self._columns = _CPU_BLOCK if model.device.type == "cpu" else _DEVICE_BLOCK
        layer = self._head and self._head.layer
        self._linear = (
            layer if type(layer) is nn.Linear and not (layer._forward_hooks or layer._forward_pre_hooks) else None
        )

    def logprobs(self, states_RH: torch.Tensor, targets: Targets) -> torch.Tensor:
        """One log-probability per target, in float32 or wider."""
        chunks = []
        for start in range(0, len(states_RH), self._rows):
            first, last = np.searchsorted(targets.rows_E, (start, start + self._rows))
            if first == last:
                continue
            rows_E = torch.from_numpy(targets.rows_E[first:last] - start).to(states_RH.device)
            tokens_E = torch.from_numpy(targets.tokens_E[first:last]).to(states_RH.device)
            chunks.append(self._rows_of(states_RH[start : start + self._rows], rows_E, tokens_E))
        return torch.cat(chunks) if chunks else wide(states_RH.new_zeros(0))

    def _rows_of(self, states_RH: torch.Tensor, rows_E: torch.Tensor, tokens_E: torch.Tensor) -> torch.Tensor:
        total_R: torch.Tensor | None = None
        chosen_E: torch.Tensor | None = None
        for start, logits_RV in self._blocks(states_RH):
            block_R = _log_sum_exp(logits_RV)
            total_R = block_R if total_R is None else torch.logaddexp(total_R, block_R)
            inside_E = tokens_E - start
            found_E = logits_RV[rows_E, inside_E.clamp(0, logits_RV.shape[1] - 1)]
            chosen_E = found_E if chosen_E is None else torch.where(inside_E < 0, chosen_E, found_E)
        assert total_R is not None
        assert chosen_E is not None
        return chosen_E - total_R[rows_E]

    def _blocks(self, states_RH: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """The logits divided by the temperature, one vocabulary block at a time, with the block's first token."""
        if self._linear is None or self._head is None:
            logits_RV = states_RH if self._head is None else self._head(states_RH)
            yield 0, wide(logits_RV) / self._temperature
            return
        weight_VH, bias_V = self._linear.weight, self._linear.bias
        for start in range(0, len(weight_VH), self._columns):
            part = slice(start, start + self._columns)
            logits_RV = functional.linear(states_RH, weight_VH[part], None if bias_V is None else bias_V[part])
            wide_RV = wide(self._head.change(logits_RV))
            yield start, wide_RV if self._temperature == 1 else wide_RV.div_(self._temperature)


def _log_sum_exp(logits_RV: torch.Tensor) -> torch.Tensor:
    """`torch.logsumexp` over the columns, computed with log softmax, which is one fused pass on a CPU.

    For 2,048 columns it takes .6 of the time. The largest log softmax is the largest logit minus the log-sum-exp, which
    gives the result. A row without a finite logit has -inf. With few columns log softmax is slower, with very many it
    is less accurate.
    """
    if not _FUSED_COLUMNS[0] <= logits_RV.shape[1] <= _FUSED_COLUMNS[1]:
        return torch.logsumexp(logits_RV, dim=1)
    largest_R = logits_RV.amax(dim=1)
    total_R = largest_R - torch.log_softmax(logits_RV, dim=1).amax(dim=1)
    return torch.where(largest_R == -torch.inf, largest_R, total_R)
