"""A KV cache for ragged batches over many turns, for any Hugging Face causal LM with full attention.

Every row attends to its own tokens only, whatever the other rows are. Rows are right-aligned. Columns without a token
of a row are masked for it. The cache is written in place, never concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from heedful.models.vision.positions import carry_shift, joined_shifts


class _Layer(CacheLayerMixin):
    """One layer's KV cache in buffers with room to grow: `[B, heads, capacity, head_dim]`."""

    is_sliding = False

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self._reserve(key_states, value_states, len(key_states))

    def _reserve(self, keys: Tensor, values: Tensor, rows: int) -> None:
        """Empty buffers for `rows` rows with heads like these. Each column is written before it is read."""
        self.keys = keys.new_empty(rows, keys.shape[1], self.room, keys.shape[3])
        self.values = values.new_empty(rows, values.shape[1], self.room, values.shape[3])
        self.is_initialized = True

    def write(self, source: _Layer, rows_B: Tensor, columns_BT: Tensor, to: slice, rows: int) -> None:
        """Fill the rows `to` of `rows` rows with these columns of these rows of `source`."""
        keys, values = cast(Tensor, source.keys), cast(Tensor, source.values)
        if not self.is_initialized:
            self.dtype, self.device = keys.dtype, keys.device
            self._reserve(keys, values, rows)
        self.length = columns_BT.shape[1]
        cast(Tensor, self.keys)[to, :, : self.length] = _gather(keys, rows_B, columns_BT)
        cast(Tensor, self.values)[to, :, : self.length] = _gather(values, rows_B, columns_BT)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        new = key_states.shape[2]
        if not self.is_initialized:
            self.room = max(self.room, new)
            self.lazy_initialization(key_states, value_states)
        keys, values = cast(Tensor, self.keys), cast(Tensor, self.values)
        if self.length + new > self.room:
            grown = max(2 * self.room, self.length + new) - self.room
            keys, values = (torch.nn.functional.pad(states, (0, 0, 0, grown)) for states in (keys, values))
            self.keys, self.values = keys, values
            self.room += grown
        end = self.length + new
        keys[:, :, self.length : end] = key_states
        values[:, :, self.length : end] = value_states
        self.length = end
        return keys[:, :, :end], values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1


@dataclass(slots=True)
class KVBatch:
    """The KV cache of several rows, the columns that hold a token of each row, and the number of its tokens."""

    cache: Cache
    filled_BT: Tensor
    """True where the column has a token of the row (bool, one column per cached column)."""
    lengths_B: Tensor
    """Tokens cached per row."""

    @classmethod
    def empty(cls, rows: int, layers: int, room: int, device: torch.device) -> KVBatch:
        return cls(
            Cache(layers=[_Layer(room) for _ in range(layers)]),
            torch.zeros(rows, 0, dtype=torch.bool, device=device),
            torch.zeros(rows, dtype=torch.long, device=device),
        )

    def extend(self, new_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Append columns. `new_BT` is True where a column has a token. Returns (attention mask, positions) for them.

        The mask is boolean `[B, 1, new, all]`. An unused query attends to itself only. Without any key a query yields
        NaN, and NaN times a zero weight spreads to every later query.
        """
        before, new = self.filled_BT.shape[1], new_BT.shape[1]
        positions_BT = (self.lengths_B[:, None] + new_BT.cumsum(1) - 1).clamp(min=0)
        self.filled_BT = torch.cat([self.filled_BT, new_BT], dim=1)
        self.lengths_B = self.lengths_B + new_BT.sum(1)
        if new == 1:
            mask = self.filled_BT[:, None, None, :].clone()
            mask[:, 0, 0, before] = True
            return mask, positions_BT
        causal = torch.ones(new, before + new, dtype=torch.bool, device=new_BT.device).tril(before)
        mask = self.filled_BT[:, None, :] & causal
        diagonal = torch.arange(new, device=new_BT.device)
        mask[:, diagonal, before + diagonal] = True
        return mask[:, None], positions_BT

    def select(self, rows: Tensor, room: int) -> KVBatch:
        """A batch of these rows (repeats allowed), right-aligned without unused columns, with `room` free columns."""
        return merge([self], [rows], room)


def merge(batches: Sequence[KVBatch], rows: Sequence[Tensor], room: int) -> KVBatch:
    """Rows of several batches as one batch, in the given order: the `rows` of the first batch, then of the second."""
    lengths_B = torch.cat([batch.lengths_B[index] for batch, index in zip(batches, rows, strict=True)])
    width = int(lengths_B.max()) if len(lengths_B) else 0
    columns = [_columns(batch, index, width) for batch, index in zip(batches, rows, strict=True)]
    layers: list[Any] = []
    for number in range(len(batches[0].cache.layers)):
        layer = _Layer(width + room)
        start = 0
        for batch, rows_B, columns_BT in zip(batches, rows, columns, strict=True):
            source = cast(_Layer, batch.cache.layers[number])
            layer.write(source, rows_B, columns_BT, slice(start, start + len(rows_B)), len(lengths_B))
            start += len(rows_B)
        layers.append(layer)
    cache = Cache(layers=layers)
    carry_shift(cache, joined_shifts([batch.cache for batch in batches], rows))
    offsets = torch.arange(width, device=lengths_B.device)
    return KVBatch(cache, offsets[None, :] >= width - lengths_B[:, None], lengths_B)


def _columns(batch: KVBatch, rows: Tensor, width: int) -> Tensor:
    """The columns of each chosen row's tokens, right-aligned in `width`. Unused entries point at column 0."""
    filled = batch.filled_BT[rows]
    rank = filled.cumsum(1) - 1 + (width - batch.lengths_B[rows])[:, None]
    columns = torch.zeros(len(rows), width + 1, dtype=torch.long, device=filled.device)
    source = torch.arange(filled.shape[1], device=filled.device).expand_as(filled)
    columns.scatter_(1, torch.where(filled, rank, torch.full_like(rank, width)), source)
    return columns[:, :width]


def _gather(states_BHTD: Tensor, rows_B: Tensor, columns_BT: Tensor) -> Tensor:
    """These columns of these rows, `[rows, heads, columns, head_dim]`, without a temporary copy of whole rows."""
    chosen_BTHD = states_BHTD.transpose(1, 2)[rows_B[:, None], columns_BT]
    return chosen_BTHD.transpose(1, 2)
