"""The keys and values of conversations between their turns.

Promise: what is not asked for again is let go; of what is held at least half the rows belong to conversations that go
on, however few of them are asked at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from heedful.policies.kv import KVBatch, merge


@dataclass(slots=True)
class Place:
    """Where the cached tokens of a conversation lie."""

    piece: int
    row: int
    ids: tuple[int, ...]


class KeptCaches:
    """Finds the cached tokens of a conversation by its key, in the batches in which its last reply was sampled."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._places: dict[str, Place] = {}
        self._pieces: dict[int, KVBatch] = {}
        self._next = 0

    @property
    def rows(self) -> int:
        """Rows that are held, those of conversations that have ended included."""
        return sum(len(piece.lengths_B) for piece in self._pieces.values())

    def find(self, key: str, context: tuple[int, ...]) -> Place | None:
        """Where the beginning of `context` is cached; `None` if nothing is, or something else, or all of it."""
        place = self._places.get(key)
        if place is None or len(place.ids) >= len(context) or context[: len(place.ids)] != place.ids:
            return None
        return place

    def gather(self, places: Sequence[Place], room: int) -> KVBatch:
        """A copy of the cached rows at `places`, in their order, with `room` free columns after."""
        pieces = sorted({place.piece for place in places})
        rows = [[index for index, place in enumerate(places) if place.piece == piece] for piece in pieces]
        merged = merge(
            [self._pieces[piece] for piece in pieces],
            [torch.tensor([places[index].row for index in indices], device=self._device) for indices in rows],
            room,
        )
        order = [index for indices in rows for index in indices]
        if order == list(range(len(places))):
            return merged
        inverse = torch.empty(len(order), dtype=torch.long, device=self._device)
        inverse[torch.tensor(order, device=self._device)] = torch.arange(len(order), device=self._device)
        return merged.select(inverse, room)

    def park(self, batch: KVBatch, rows: Sequence[tuple[int, str, tuple[int, ...]]]) -> None:
        """Hold `batch` for these conversations: row, key and the ids that are cached in it."""
        for row, key, ids in rows:
            self._places[key] = Place(self._next, row, ids)
        self._pieces[self._next] = batch
        self._next += 1

    def keep_only(self, keys: Collection[str]) -> None:
        """Let go of all other conversations; batches of which at most half the rows are left are cut down to these."""
        self._places = {key: place for key, place in self._places.items() if key in keys}
        left: dict[int, list[Place]] = {number: [] for number in self._pieces}
        for place in self._places.values():
            left[place.piece].append(place)
        for number, places in left.items():
            if not places:
                del self._pieces[number]
            elif 2 * len(places) <= len(self._pieces[number].lengths_B):
                rows = torch.tensor([place.row for place in places], device=self._device)
                self._pieces[number] = self._pieces[number].select(rows, 0)
                for row, place in enumerate(places):
                    place.row = row
