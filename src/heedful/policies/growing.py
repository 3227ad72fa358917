"""Replies that grow together token by token, and the probe that chooses the way in which a model reads them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import product
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from heedful.models.forward.exactness import Probe, evaluating, reach
from heedful.policies.kv import KVBatch, KVStore, Place, gather
from heedful.policies.next_logits import Reader, Way
from heedful.policies.rows import Row
from heedful.types import Prompt

Ids = tuple[int, ...]

Choose = Callable[[Tensor, list[Row]], Tensor]
"""Appends a token to each open row, given its logits `[B, V]`, and closes rows that end. Returns the tokens `[B]`."""

_FOUND: WeakKeyDictionary[PreTrainedModel, tuple[str, Way, str]] = WeakKeyDictionary()
"""For each model that was probed: the kind of attention, the way, and the obstacle to all faster ways."""


class Growing:
    """Replies that grow in one batch. New conversations can join at any time.

    Rows leave the batch once half of all replies have ended, or at once if the way of the reader leaves out no row.
    """

    def __init__(self, reader: Reader, choose: Choose, store: KVStore) -> None:
        self.live: list[Row] = []
        """Row i of the batch belongs to `live[i]`. It may have ended."""
        self._reader, self._choose, self._store = reader, choose, store
        self._batch: KVBatch = reader.empty()
        self._logits_BV = torch.empty(0, 0, device=reader.model.device)

    def join(self, rows: Sequence[Row], others: Collection[str] = ()) -> None:
        """Read the contexts of `rows`, each distinct one once, behind what is stored of them.

        What is stored of conversations that are not among `others` is freed.
        """
        room = max(row.allowed for row in rows)
        places, new, numbers = self._behind(rows, others)
        logits_BV = self._reader.read(places, new, room)[numbers]
        still_open = [index for index, row in enumerate(self.live) if row.open]
        if still_open:
            logits_BV = torch.cat([self._logits_BV[still_open], logits_BV])
        self.live[:] = [*(self.live[index] for index in still_open), *rows]
        self._logits_BV = logits_BV
        self._take([*((self._batch, index) for index in still_open), *(places[number] for number in numbers)])

    def grow(self) -> list[Row]:
        """Choose one token for each open row. Returns the rows that ended with it."""
        before = [index for index, row in enumerate(self.live) if row.open]
        tokens_B = self._choose(self._logits_BV, self.live)
        ended = [index for index in before if not self.live[index].open]
        self._keep(ended)
        over = [self.live[index] for index in ended]
        still_open = [index for index, row in enumerate(self.live) if row.open]
        if not still_open:
            self.live.clear()
            return over
        if 2 * len(still_open) <= len(self.live) or (ended and not self._reader.skips):
            self.live[:] = [self.live[index] for index in still_open]
            self._take([(self._batch, index) for index in still_open])
            tokens_B = tokens_B[still_open]
        feeds_B = torch.tensor([row.open for row in self.live], device=tokens_B.device)
        self._logits_BV = self._reader.step(self._batch, tokens_B, feeds_B)
        return over

    def _behind(self, rows: Sequence[Row], others: Collection[str]) -> tuple[list[Place], list[Ids], list[int]]:
        """Rows of batches, the ids to read behind each, and the number of these that belongs to each of `rows`."""
        stored = [self._store.take(row.key, row.context) for row in rows]
        self._store.keep_only(others)
        begun = self._begun([row.context for row, found in zip(rows, stored, strict=True) if found is None])
        behind = [(row.context, *(found or begun)) for row, found in zip(rows, stored, strict=True)]
        number = {one: index for index, one in enumerate(dict.fromkeys(behind))}
        new = [context[len(ids) :] for context, ids, _ in number]
        return [place for _, _, place in number], new, [number[one] for one in behind]

    def _begun(self, contexts: Sequence[Ids]) -> tuple[Ids, Place]:
        """The beginning that is shared by these contexts, and its row. Read once."""
        known, places = self._store.beginning, [(self._reader.empty(), 0)]
        shares = contexts and self._reader.way in (Way.BUFFERS, Way.STATES)
        ids = known.of(list(dict.fromkeys(contexts))) if shares else ()
        if ids and known.batch is None:
            self._reader.read(places, [ids], 0)
            known.batch = places[0][0]
        return ids, (known.batch, 0) if ids and known.batch else places[0]

    def _take(self, places: Sequence[Place]) -> None:
        """Make these rows the batch, with room for what may be sampled. They are copied unless they are one already."""
        batch = places[0][0]
        if list(places) != [(batch, index) for index in range(len(batch.lengths_B))]:
            batch = gather(places, max(row.allowed - len(row.ids) for row in self.live))
        self._batch = batch

    def _keep(self, ended: Sequence[int]) -> None:
        """Store the rows of replies that have ended. Their last token was not read yet."""
        if not ended:
            return
        places = [(self._batch, index) for index in ended]
        if not self._reader.skips and len(ended) < len(self.live):  # else the rows stay as they are in their batch
            cut = gather(places)
            places = [(cut, index) for index in range(len(ended))]
        lengths = places[0][0].lengths_B.tolist()
        for index, place in zip(ended, places, strict=True):
            row = self.live[index]
            self._store.put(row.key, (*row.context, *row.ids)[: lengths[place[1]]], place)


def way_of(model: PreTrainedModel) -> tuple[Way, str]:
    """The fastest exact way to sample from a model, and why it has no KV cache, as half a sentence, or nothing.

    Probed once per model and kind of attention. Warns if there is an obstacle, because sampling is slow then. Without
    finite logits nothing can be compared: then the next call probes again.
    """
    attention = str(model.config._attn_implementation)
    if model not in _FOUND or _FOUND[model][0] != attention:
        with evaluating(model), torch.no_grad():
            probe = Probe.of(model)
            if not probe.finite:
                return Way.BUFFERS, ""
            found, obstacle = Way.UNCACHED, ""
            ways = (Way.BUFFERS, Way.STATES, Way.SINGLES, Way.PAIRS)
            shares = (0.25, 1.0) if reach(model) else (1.0,)  # in half precision a wrong way may pass as rounding
            for share, way in product(shares, ways):
                here = probe.obstacle(partial(_played, model, probe, way), share)
                if not here:
                    found, obstacle = way, ""
                    break
                obstacle = obstacle or here
        _FOUND[model] = attention, found, obstacle
        if obstacle:
            warnings.warn(
                f"The KV cache of {type(model).__name__} cannot be used for sampling, since {obstacle}. Each token is "
                "sampled from a whole forward pass. This is exact and slow; a model with full attention, such as "
                "Qwen2.5 or Llama 3, is faster.",
                stacklevel=2,
            )
    return _FOUND[model][1:]


def _played(model: PreTrainedModel, probe: Probe, way: Way) -> list[list[list[float]]]:
    """Log-probabilities of the probe's thoughts, sampled in the third of three turns, with ragged rows in each."""
    whole = [(prompt, thought) for thought in probe.thoughts for prompt in probe.prompts]

    def choose(logits_BV: Tensor, live: list[Row]) -> Tensor:
        tokens = [sum(whole[int(row.key)], ())[len(row.context) + len(row.ids)] if row.open else 0 for row in live]
        tokens_B = torch.tensor(tokens, device=logits_BV.device)
        chosen_B = logits_BV.log_softmax(-1).gather(1, tokens_B[:, None])[:, 0]
        for row, token, logprob in zip(live, tokens, chosen_B.tolist(), strict=True):
            if row.open:
                row.ids.append(token)
                row.logprobs.append(logprob)
                row.open = len(row.ids) < row.allowed
        return tokens_B

    growing = Growing(Reader(model, way, model), choose, KVStore())
    rows: list[Row] = []
    for turn in range(3):
        rows = []
        for number, (prompt, thought) in enumerate(whole):
            start, most = len(prompt), len(thought)
            if turn < 2:  # a part of the prompt is read, and a few more tokens of it take the place of a reply
                start, most = (start // 4 + 1, 1 + number % 4) if turn == 0 else (start // 2 + number, 1 + number % 3)
            if turn == 2 or (start + most < len(prompt) and turn * number % 2 == 0):
                rows.append(Row(str(number), Prompt("", ()), (prompt + thought)[:start], most, 0))
        if rows:
            growing.join(rows, others=[str(number) for number in range(len(whole))])
        while growing.live:
            growing.grow()
    found = [row.logprobs for row in rows]
    return [found[start : start + len(probe.prompts)] for start in range(0, len(found), len(probe.prompts))]
