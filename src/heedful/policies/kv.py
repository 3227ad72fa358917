"""States of ragged batches over many turns: keys and values, and the recurrent states of models that have them.

Every row attends to its own tokens only, whatever the other rows are. Rows are right-aligned. Columns without a token
of a row are masked for it. Keys in buffers of this module are written in place, never concatenated. A store keeps the
states of conversations between their turns, and of the beginning that their contexts have in common.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from heedful.models.forward.shared_prompts import SAVED, WORTH, common_beginning
from heedful.models.forward.states import stack
from heedful.models.vision.positions import carry_shift, joined_shifts

Ids = tuple[int, ...]


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


class KVStore:
    """The row of each conversation after its last reply, and the ids that were read in it.

    At least half of the rows in the store belong to open conversations, however few of them each call answers.
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Ids, Place]] = {}
        self.beginning = Beginning()

    @property
    def rows(self) -> int:
        """Rows in memory, including rows of conversations that have ended."""
        return sum(len(batch.lengths_B) for batch, _ in by_batch([place for _, place in self._rows.values()]))

    def take(self, key: str, context: Ids) -> tuple[Ids, Place] | None:
        """Remove the row of a conversation. `None` if it holds no beginning of `context`, or all but one id of it."""
        row = self._rows.pop(key, None)
        return row if row and len(row[0]) + 1 < len(context) and context[: len(row[0])] == row[0] else None

    def put(self, key: str, ids: Ids, place: Place) -> None:
        """Keep the row of a conversation, in which these ids were read."""
        self._rows[key] = ids, place

    def keep_only(self, keys: Collection[str]) -> None:
        """Free all other conversations. A batch with at most half of its rows left is cut down to these rows."""
        self._rows = {key: row for key, row in self._rows.items() if key in keys}
        left = list(self._rows)
        for batch, members in by_batch([self._rows[key][1] for key in left]):
            if 2 * len(members) <= len(batch.lengths_B):
                cut = gather([self._rows[left[index]][1] for index in members])
                for row, index in enumerate(members):
                    self._rows[left[index]] = self._rows[left[index]][0], (cut, row)


@dataclass(slots=True)
class Beginning:
    """The beginning that the contexts of all conversations have in common, such as the rules of an environment.

    It was found last, and its KV cache is computed once: every context continues behind a copy of it.
    """

    ids: Ids = ()
    batch: KVBatch | None = None
    """One row, which holds `ids`."""

    def of(self, contexts: Sequence[Ids]) -> Ids:
        """The ids with which all these distinct contexts begin, or nothing if that is not worth it.

        A beginning that is known already is taken again where it fits. At least one id of each context is left over.
        """
        total = sum(map(len, contexts))
        length = len(self.ids)
        fits = all(len(context) > length and context[:length] == self.ids for context in contexts)
        if length and fits and len(contexts) * length >= SAVED * total:
            return self.ids
        common = min(common_beginning(contexts), min(map(len, contexts)) - 1)
        if common < WORTH or (len(contexts) - 1) * common < SAVED * total:
            return ()
        self.ids, self.batch = contexts[0][:common], None
        return self.ids
