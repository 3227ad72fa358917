"""Prompts that a scorer has read, kept for its next calls: the parts of a measurement ask about the same prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from transformers.cache_utils import Cache

from heedful.models.forward.states import padded, rows_can_be_joined
from heedful.scorers.pairs import Ids


class ReadPrompts(NamedTuple):
    """What a pass over P prompts leaves."""

    cache: Cache
    last_PH: torch.Tensor
    """The state after each prompt."""
    lengths_P: torch.Tensor | None = None
    """The tokens of each prompt, where they are padded on the right to those of the longest. `None`: all are equal."""


class _Row(NamedTuple):
    read: ReadPrompts
    row: int


class KeptPrompts:
    """Keys and values of prompts, to be used as long as the weights stay as they are.

    The first passes are kept, at most `most_tokens` tokens in all, padding included. Prompts with pictures are not
    kept, nor are those of a model that keeps more than keys and values.
    """

    def __init__(self, most_tokens: int = 0) -> None:
        self._room = most_tokens
        self._rows: dict[Ids, _Row] = {}

    def read(self, prompts: list[Ids], read: Callable[[list[Ids]], ReadPrompts]) -> ReadPrompts:
        """The prompts of a pass. `read` gets those that are not kept, unless all are kept."""
        if any(min(ids, default=0) < 0 for ids in prompts):
            return read(prompts)
        known = {ids: self._rows[ids] for ids in prompts if ids in self._rows}
        new = [ids for ids in dict.fromkeys(prompts) if ids not in known]
        if not known:
            found = read(prompts)
            self._keep(prompts, found)
            return found
        if new:
            found = read(new)
            self._keep(new, found)
            known |= {ids: _Row(found, row) for row, ids in enumerate(new)}
        rows = [known[ids] for ids in prompts]
        last_PH = torch.stack([read.last_PH[row] for read, row in rows])
        lengths = list(map(len, prompts))
        cache = padded([(read.cache, row, length) for (read, row), length in zip(rows, lengths, strict=True)])
        equal = len(set(lengths)) == 1
        return ReadPrompts(cache, last_PH, None if equal else torch.tensor(lengths, device=last_PH.device))

    def _keep(self, prompts: list[Ids], found: ReadPrompts) -> None:
        tokens = len(prompts) * max(map(len, prompts))
        if tokens <= self._room and rows_can_be_joined(found.cache):
            self._room -= tokens
            own = found._replace(last_PH=found.last_PH.clone())  # not a view of the states of all tokens
            self._rows |= {ids: _Row(own, row) for row, ids in enumerate(prompts)}
