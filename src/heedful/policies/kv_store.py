"""The KV caches of conversations between their turns.

The cache of a conversation that has ended is freed. At least half of the rows in the store belong to open
conversations, however few of them each call answers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from heedful.models.forward.shared_prompts import SAVED, WORTH, common_beginning
from heedful.policies.kv import KVBatch, merge

Ids = tuple[int, ...]


@dataclass(slots=True)
class CachedRow:
    """The place of the KV cache of one conversation."""

    batch: int
    """Number of the batch in the store."""
    row: int
    ids: tuple[int, ...]
    """The tokens that are cached."""


class KVStore:
    """Finds the KV cache of a conversation by its key, in the batch in which its last reply was sampled."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._found: dict[str, CachedRow] = {}
        self._batches: dict[int, KVBatch] = {}
        self._next = 0

    @property
    def rows(self) -> int:
        """Rows in the store, including rows of conversations that have ended."""
        return sum(len(batch.lengths_B) for batch in self._batches.values())

    def find(self, key: str, context: tuple[int, ...]) -> CachedRow | None:
        """The cached beginning of `context`. `None` if nothing is cached, or other tokens, or all of the context."""
        cached = self._found.get(key)
        if cached is None or len(cached.ids) >= len(context) or context[: len(cached.ids)] != cached.ids:
            return None
        return cached

    def gather(self, rows: Sequence[CachedRow], room: int) -> KVBatch:
        """A copy of these rows, in this order, with `room` free columns after each."""
        batches = sorted({row.batch for row in rows})
        members = [[index for index, row in enumerate(rows) if row.batch == batch] for batch in batches]
        merged = merge(
            [self._batches[batch] for batch in batches],
            [torch.tensor([rows[index].row for index in indices], device=self._device) for indices in members],
            room,
        )
        order = [index for indices in members for index in indices]
        if order == list(range(len(rows))):
            return merged
        inverse = torch.empty(len(order), dtype=torch.long, device=self._device)
        inverse[torch.tensor(order, device=self._device)] = torch.arange(len(order), device=self._device)
        return merged.select(inverse, room)

    def put(self, batch: KVBatch, rows: Sequence[tuple[int, str, tuple[int, ...]]]) -> None:
        """Store `batch` for these conversations: row, key and the ids that are cached in the row."""
        for row, key, ids in rows:
            self._found[key] = CachedRow(self._next, row, ids)
        self._batches[self._next] = batch
        self._next += 1

    def keep_only(self, keys: Collection[str]) -> None:
        """Free all other conversations. A batch with at most half of its rows left is cut down to these rows."""
        self._found = {key: cached for key, cached in self._found.items() if key in keys}
        left: dict[int, list[CachedRow]] = {number: [] for number in self._batches}
        for cached in self._found.values():
            left[cached.batch].append(cached)
        for number, members in left.items():
            if not members:
                del self._batches[number]
            elif 2 * len(members) <= len(self._batches[number].lengths_B):
                rows = torch.tensor([cached.row for cached in members], device=self._device)
                self._batches[number] = self._batches[number].select(rows, 0)
                for row, cached in enumerate(members):
                    cached.row = row


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
