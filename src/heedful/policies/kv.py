"""States of ragged batches over many turns: keys and values, and the recurrent states of models that have them.

Every row attends to its own tokens only, whatever the other rows are. Rows are right-aligned. Columns without a token
of a row are masked for it. Keys in buffers of this module are written in place, never concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from heedful.models.forward.states import stack
from heedful.models.vision.positions import carry_shift, joined_shifts


class _Layer(CacheLayerMixin):
    """One layer's KV cache in buffers with room to grow: `[B, heads, capacity, head_dim]`."""

    is_sliding = False

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor, rows: int = 0) -> None:
        """Empty buffers for `rows` rows (0 = as many) with such heads. Each column is written before it is read."""
        rows = rows or len(key_states)
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_empty(rows, key_states.shape[1], self.room, key_states.shape[3])
        self.values = value_states.new_empty(rows, value_states.shape[1], self.room, value_states.shape[3])
        self.is_initialized = True

    def write(self, source: _Layer, rows_B: Tensor, columns_BT: Tensor, to: slice, rows: int) -> None:
        """Fill the rows `to` of `rows` rows with these columns of these rows of `source`."""
        keys, values = cast(Tensor, source.keys), cast(Tensor, source.values)
        if not self.is_initialized:
            self.lazy_initialization(keys, values, rows)
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


@dataclass(slots=True, eq=False)
class KVBatch:
    """The states of several rows, the columns that hold a token of each row, and the number of its tokens."""

    cache: Cache | None
    """`None`: nothing was read, and the model makes its cache by itself."""
    filled_BT: Tensor
    """True where the column has a token of the row (bool, one column per cached column)."""
    lengths_B: Tensor
    """Tokens cached per row."""
    waiting_B1: Tensor | None = None
    """A token of each row that is not in the cache yet: see `next_logits.Way.PAIRS`."""

    @classmethod
    def empty(cls, rows: int, layers: int, room: int, device: torch.device) -> KVBatch:
        """Rows without a token. `layers`: of keys that are written in place. 0 = the model makes its own cache."""
        return cls(
            Cache(layers=[_Layer(room) for _ in range(layers)]) if layers else None,
            torch.zeros(rows, 0, dtype=torch.bool, device=device),
            torch.zeros(rows, dtype=torch.long, device=device),
        )

    def extend(self, new_BT: Tensor) -> None:
        """Append columns. `new_BT` is True where a column has a token."""
        self.filled_BT = torch.cat([self.filled_BT, new_BT], dim=1)
        self.lengths_B = self.lengths_B + new_BT.sum(1)


Place = tuple[KVBatch, int]
"""A row of a batch."""


def by_batch(places: Sequence[Place]) -> list[tuple[KVBatch, list[int]]]:
    """The distinct batches, and the indices of the places in each."""
    found: dict[int, tuple[KVBatch, list[int]]] = {}
    for index, (batch, _) in enumerate(places):
        found.setdefault(id(batch), (batch, []))[1].append(index)
    return list(found.values())


def gather(places: Sequence[Place], room: int = 0) -> KVBatch:
    """A copy of these rows (repeats allowed) as one batch, in this order, right-aligned without unused columns.

    Keys that are written in place have `room` free columns.
    """
    parts = by_batch(places)
    order = [index for _, members in parts for index in members]
    batches = [batch for batch, _ in parts]
    rows = [
        torch.tensor([places[index][1] for index in members], device=batches[0].lengths_B.device)
        for _, members in parts
    ]
    lengths_B = torch.cat([batch.lengths_B[index] for batch, index in zip(batches, rows, strict=True)])
    width = int(lengths_B.max())
    offsets = torch.arange(width, device=lengths_B.device)
    joined = KVBatch(None, offsets[None, :] >= width - lengths_B[:, None], lengths_B)
    if batches[0].cache is not None:
        caches = [cast(Cache, batch.cache) for batch in batches]
        if isinstance(caches[0].layers[0], _Layer):
            joined.cache = _in_place(batches, rows, width, room)
        else:
            joined.cache = stack(caches, rows, width)
        carry_shift(joined.cache, joined_shifts(caches, rows))
    if len(batches) == 1 and batches[0].waiting_B1 is not None:
        joined.waiting_B1 = batches[0].waiting_B1[rows[0]]
    return joined if order == sorted(order) else gather([(joined, order.index(row)) for row in range(len(order))], room)


def _in_place(batches: Sequence[KVBatch], rows: Sequence[Tensor], width: int, room: int) -> Cache:
    """The keys and values of these rows of each batch, in buffers of `width + room` columns."""
    columns = [_columns(batch, index, width) for batch, index in zip(batches, rows, strict=True)]
    layers: list[Any] = []
    for number in range(len(cast(Cache, batches[0].cache).layers)):
        layer, start = _Layer(width + room), 0
        for batch, rows_B, columns_BT in zip(batches, rows, columns, strict=True):
            source = cast(_Layer, cast(Cache, batch.cache).layers[number])
            if source.keys is not None:  # else this layer of the model keeps nothing
                layer.write(source, rows_B, columns_BT, slice(start, start + len(rows_B)), sum(map(len, rows)))
            start += len(rows_B)
        layers.append(layer)
    return Cache(layers=layers)


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
