"""Logits of the next tokens of a batch: ways to read new tokens behind earlier ones. `growing.way_of` chooses one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from heedful.models.forward.exactness import plain_states, wide
from heedful.models.forward.states import fork, keeps_keys_alone, read
from heedful.policies.kv import KVBatch, Place, gather

Ids = Sequence[int]

Decode = Callable[..., Any]
"""The forward pass of a model: the model itself, or a compiled form of it."""


class Way(Enum):
    """How the tokens behind earlier ones are read. The fastest one is first."""

    BUFFERS = "keys and values; rows of any lengths together, with unused columns anywhere"
    STATES = "states; rows with equally many new tokens together, so unused columns are before all tokens of a row"
    SINGLES = "states; new tokens one by one: a pass of several tokens forgets the state"
    PAIRS = "states; new tokens two by two: a pass of a single token computes otherwise"
    UNCACHED = "one plain forward pass over the whole row for each token"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the tokens of batches in one way."""

    model: PreTrainedModel
    way: Way
    decode: Decode
    """Reads single columns, where keys are written in place."""

    @property
    def skips(self) -> bool:
        """Whether a row of a batch can be left out of a pass."""
        return self.way in (Way.BUFFERS, Way.UNCACHED)

    def empty(self) -> KVBatch:
        """One row without tokens."""
        layers = 1  # of ids instead of keys
        if self.way is not Way.UNCACHED:
            keys_alone = self.way is Way.BUFFERS or keeps_keys_alone(self.model)
            layers = self.model.config.get_text_config(decoder=True).num_hidden_layers if keys_alone else 0
        return KVBatch.empty(1, layers, 0, self.model.device)

    def read(self, places: list[Place], new: Sequence[Ids], room: int) -> Tensor:
        """Read `new[i]` behind row `places[i]`: the logits `[N, V]` after each, in float32 or wider.

        `places` are changed to where the rows are then. Keys that are written in place have `room` columns more.
        """
        at = [0] * len(new)
        after: list[Any] = [None] * len(new)
        for rows in self._passes([not batch.filled_BT.shape[1] for batch, _ in places], list(map(len, new))):
            batch = gather([places[row] for row, _ in rows], max(count for _, count in rows) + room)
            batch.waiting_B1 = None
            for number, (row, _) in enumerate(rows):
                places[row] = batch, number  # frees the original before further memory is taken
            taken = [new[row][at[row] : at[row] + count] for row, count in rows]
            logits_BV = self._forward(batch, *_left_padded(taken, self.model.device))
            for (row, count), logits_V in zip(rows, logits_BV, strict=True):
                at[row] += count
                after[row] = logits_V
        return torch.stack(after)

    def step(self, batch: KVBatch, tokens_B: Tensor, feeds_B: Tensor) -> Tensor:
        """Read one token in the rows where `feeds_B` is True: the logits `[B, V]` after it, in float32 or wider."""
        own_B1, feeds_B1 = tokens_B[:, None], feeds_B[:, None]
        if self.way is not Way.PAIRS:
            return self._forward(batch, own_B1, feeds_B1)
        if batch.waiting_B1 is not None:
            pair_B2, batch.waiting_B1 = torch.cat([batch.waiting_B1, own_B1], dim=1), None
            return self._forward(batch, pair_B2, feeds_B1.expand(-1, 2))
        # Behind a single token stands a second one that is none. It is read on a copy: the batch holds pairs alone.
        rows_B = torch.arange(len(own_B1), device=own_B1.device)
        copied = KVBatch(fork(cast(Any, batch.cache), rows_B), batch.filled_BT, batch.lengths_B)
        batch.waiting_B1 = own_B1
        return self._forward(copied, own_B1.expand(-1, 2), feeds_B1.expand(-1, 2), last=2)

    def _passes(self, fresh: list[bool], lengths: list[int]) -> list[list[tuple[int, int]]]:
        """The rows of each pass, and the number of tokens that it reads in each.

        Rows without earlier tokens (`fresh`) are read by themselves: beside longer rows they would have
        columns that were never written.
        """
        cuts, plans = [[[length] for length in lengths]], []
        if self.way is Way.STATES:  # or in powers of two, the largest first, where these are fewer passes
            cuts.append([[1 << bit for bit in range(31, -1, -1) if length >> bit & 1] for length in lengths])
        elif self.way is Way.SINGLES:
            cuts = [[[length] if new else [1] * length for new, length in zip(fresh, lengths, strict=True)]]
        for cut in cuts:
            passes: dict[tuple[bool, int, int], list[tuple[int, int]]] = {}
            for row, sizes in enumerate(cut):
                for place, size in enumerate(sizes):
                    kind = place > 0 or not fresh[row], 0 if self.skips else -size, place * (self.way is Way.SINGLES)
                    passes.setdefault(kind, []).append((row, size))
            plans.append(sorted(passes.items()))
        return [read for _, read in min(plans, key=len)]

    def _forward(self, batch: KVBatch, ids_BT: Tensor, filled_BT: Tensor, last: int = 1) -> Tensor:
        """Append columns to the batch: the logits `[B, V]` of the `last` column from the right."""
        batch.extend(filled_BT)
        if self.way is Way.UNCACHED:  # rows without a new token are not read: their logits are 0
            ids_B1T1 = ids_BT[:, None, :, None]
            known_B1T1, _ = cast(Any, batch.cache).layers[0].update(ids_B1T1, ids_B1T1)
            fed = filled_BT.any(1).nonzero()[:, 0].tolist()
            wholes = [known_B1T1[row, 0, batch.filled_BT[row], 0][None] for row in fed]
            after_NV = torch.stack([plain_states(self.model, ids_1T)[0, -1] for ids_1T in wholes])
            logits_BV = after_NV.new_zeros(len(ids_BT), after_NV.shape[1])
            logits_BV[fed] = after_NV
            return wide(logits_BV)
        if self.way is Way.BUFFERS and ids_BT.shape[1] == 1:
            sdpa = self.model.config._attn_implementation == "sdpa"  # then transformers builds no mask of its own
            logits_BTV = self.decode(
                input_ids=ids_BT,
                attention_mask=batch.filled_BT[:, None, None] if sdpa else batch.filled_BT,
                position_ids=batch.lengths_B[:, None] - 1,
                past_key_values=batch.cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits
        else:
            mask_BT = None if batch.cache is None else batch.filled_BT
            logits_BTV, batch.cache = read(self.model, ids_BT, batch.cache, mask_BT=mask_BT, logits_to_keep=last)
        return wide(logits_BTV[:, -last])


def _left_padded(sequences: Sequence[Ids], device: torch.device) -> tuple[Tensor, Tensor]:
    """The ids, right-aligned, and the mask that is True where there is a token."""
    width = max(map(len, sequences))
    ids = [[0] * (width - len(sequence)) + list(sequence) for sequence in sequences]
    filled = [[False] * (width - len(sequence)) + [True] * len(sequence) for sequence in sequences]
    return torch.tensor(ids, device=device), torch.tensor(filled, device=device)
