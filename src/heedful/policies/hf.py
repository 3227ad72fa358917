"""The batched sampler: any Hugging Face causal LM as a policy over whole conversations.

The reported ids and log-probabilities belong to the sampled tokens. They equal a teacher-forced forward pass to
rounding error. The KV cache of a conversation is kept over its turns. No token is computed twice while the context only
grows, even if each call answers only some of the conversations.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from heedful.models.forward.attention import longest_context, refuse_unless_causal
from heedful.policies.drawing import draw, gumbels
from heedful.policies.kv import KVBatch, merge
from heedful.policies.kv_store import Beginning, KVStore
from heedful.policies.next_logits import Decode, cached_logits, left_padded, obstacle_to_kv_cache, uncached_logits
from heedful.policies.rows import ReplyRenderer, Row
from heedful.policies.sampling import Sampling
from heedful.types import Conversation, Reply

JOIN_EVERY = 4
"""Tokens that are sampled between two moments at which new conversations can join the batch."""


class HFPolicy:
    """A policy over one model with fixed weights. Make a new one after each update.

    Rows leave the batch once half of all replies have ended. Their KV cache is kept for the next turn. Equal contexts
    in one call are computed once. Replies are sampled without dropout. The model's train or eval state is restored
    afterwards.

    Args:
        seed: seeds the sampling noise. The same seed, weights and conversations give the same replies. With the noise
            `conversation`, a reply depends on the seed, `Conversation.key` and `Conversation.turn`, and not on the
            other conversations of the call.
        version: number of updates the weights have seen.
        decode: computes single columns of tokens in the place of the model, `next_logits.compiled` for instance. Not
            used where replies are sampled without a cache, or in double precision.

    A probe compares the KV cache with plain forward passes before the first token. If they differ, replies are sampled
    without a cache, from one whole forward pass per token, with a warning.

    Raises ValueError for a model that is not causal.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        renderer: ReplyRenderer,
        sampling: Sampling,
        *,
        seed: int,
        version: int = 0,
        decode: Decode | None = None,
    ) -> None:
        refuse_unless_causal(model)
        self._given = model
        double = sampling.precision == "double"
        self.model = copy.deepcopy(model).double() if double else model
        self._decode: Decode = self.model if double or decode is None else decode
        self.renderer = renderer
        self.sampling = sampling
        self.version = version
        self.device = model.device
        self._seed = seed
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._limit = longest_context(model) or 1 << 30
        self._store = KVStore(self.device)
        self._beginning = Beginning()
        self._open: Collection[str] = ()

    @property
    def obstacle(self) -> str:
        """Why replies are sampled without a KV cache, as half a sentence. Empty if the cache is exact.

        The first call for a model reads a few tokens. Later calls remember its result.
        """
        return obstacle_to_kv_cache(self._given)

    @property
    def temperature(self) -> float:
        return self.sampling.temperature

    @property
    def parallel(self) -> int:
        return 1

    def keep(self, keys: Collection[str]) -> None:
        """Keep the KV cache of these conversations through the next call, even if it leaves them out."""
        self._open = keys

    @torch.inference_mode()
    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One sampled reply per conversation. A context that fills the model's window gets an empty, cut reply.

        Raises MemoryError when the device has too little memory, and ValueError when the model's logits are not finite.
        """
        rows = [self._row(conversation) for conversation in conversations]
        if growing := [row for row in rows if row.allowed > 0]:
            with self._sampling(growing):
                self._sample(growing)
        return [row.reply(self.renderer) for row in rows]

    @torch.inference_mode()
    def serve(
        self, arrivals: Callable[[bool], Sequence[Conversation]], hand_over: Callable[[str, Reply], None]
    ) -> None:
        """Answer conversations with continuous batching: every few tokens new ones join the batch.

        For `arrivals` and `hand_over` see `protocols.ContinuousBatching`. Each reply is handed over right after
        the token that ends it. Raises the errors of `respond`.
        """
        live: list[Row] = []
        batch, logits_BV = KVBatch.empty(0, 0, 0, self.device), torch.empty(0, 0, device=self.device)
        with self._sampling(live):
            while True:
                new = [self._row(conversation) for conversation in arrivals(not live)]
                if not new and not live:
                    return
                for row in new:
                    if row.allowed < 1:
                        hand_over(row.key, row.reply(self.renderer))
                if rows := [row for row in new if row.allowed > 0]:
                    batch, logits_BV = self._join(live, batch, logits_BV, rows)
                for _ in range(JOIN_EVERY):
                    if not live:
                        break
                    batch, logits_BV = self._grow(live, batch, logits_BV, hand_over)

    def _join(self, live: list[Row], batch: KVBatch, logits_BV: Tensor, rows: Sequence[Row]) -> tuple[KVBatch, Tensor]:
        """Prefill `rows` and append them to the open rows of `live`, in place."""
        new, new_batch, new_logits_BV = self._prefill(rows)
        still_open = [index for index, row in enumerate(live) if row.open]
        live[:] = [*(live[index] for index in still_open), *new]
        if not still_open:
            return new_batch, new_logits_BV
        room = max(row.allowed - len(row.ids) for row in live)
        chosen = [torch.tensor(still_open, device=self.device), torch.arange(len(new), device=self.device)]
        return merge([batch, new_batch], chosen, room), torch.cat([logits_BV[chosen[0]], new_logits_BV])

    def _grow(
        self, live: list[Row], batch: KVBatch, logits_BV: Tensor, hand_over: Callable[[str, Reply], None]
    ) -> tuple[KVBatch, Tensor]:
        """Sample one token for each open row of `live`. Replies that end are handed over, their KV cache is kept."""
        before = [index for index, row in enumerate(live) if row.open]
        tokens_B = self._record(logits_BV, live)
        if ended := [index for index in before if not live[index].open]:
            self._store_ended(batch.select(torch.tensor(ended, device=self.device), 0), [live[i] for i in ended])
            for index in ended:
                hand_over(live[index].key, live[index].reply(self.renderer))
        if not any(row.open for row in live):
            live.clear()
            return batch, logits_BV
        return self._continued(live, batch, tokens_B)

    def _continued(self, live: list[Row], batch: KVBatch, tokens_B: Tensor) -> tuple[KVBatch, Tensor]:
        """Feed the sampled tokens. Once half of the rows have ended, `live` and the batch are cut to the open ones."""
        still_open = [index for index, row in enumerate(live) if row.open]
        if 2 * len(still_open) <= len(live):
            chosen_B = torch.tensor(still_open, device=self.device)
            live[:] = [live[index] for index in still_open]
            batch = batch.select(chosen_B, max(row.allowed - len(row.ids) for row in live))
            tokens_B = tokens_B[chosen_B]
        feeds_B = torch.tensor([row.open for row in live], device=self.device)
        return batch, self._forward(batch, tokens_B[:, None], feeds_B[:, None])

    def _row(self, conversation: Conversation) -> Row:
        return Row.of(conversation, self.renderer, self.sampling.tokens_per_turn, self._limit, self._seed)

    @contextmanager
    def _sampling(self, rows: Sequence[Row]) -> Iterator[None]:
        """The model in evaluation mode. An out-of-memory error is raised as a sentence about `rows`."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        except torch.OutOfMemoryError as error:
            longest = max((len(row.context) for row in rows), default=0)
            raise MemoryError(
                f"The device ran out of memory while {len(rows)} conversations of up to {longest} tokens were sampled; "
                "lower --groups, --group-size or --sampling.tokens-per-turn, and in evaluations --evaluation.at-once."
            ) from error
        finally:
            self.model.train(training)

    def _sample(self, rows: Sequence[Row]) -> None:
        """Sample every row's reply until it ends."""
        live, batch, logits_BV = self._prefill(rows)  # row i of the batch belongs to live[i]
        while True:
            tokens_B = self._record(logits_BV, live)
            still_open = sum(row.open for row in live)
            if 2 * still_open <= len(live):
                self._store_ended(batch, live)
            if not still_open:
                return
            batch, logits_BV = self._continued(live, batch, tokens_B)

    def _prefill(self, rows: Sequence[Row]) -> tuple[list[Row], KVBatch, Tensor]:
        """Compute the KV cache of every context.

        Returns the rows in the order of the batch, the batch, and the logits after each context.
        """
        room = max(row.allowed for row in rows)
        found = [(row, self._store.find(row.key, row.context)) for row in rows]
        known = [(row, cached) for row, cached in found if cached is not None]
        new = [row for row, cached in found if cached is None]
        fresh = [row.context[len(cached.ids) :] for row, cached in known]
        width = max(map(len, fresh), default=0) + room
        batch = self._store.gather([cached for _, cached in known], width) if known else None
        # The gathered rows are copies: free the originals before further memory is taken.
        gathered = {row.key for row in rows}
        self._store.keep_only({key for key in self._open if key not in gathered})
        continued = [row for row, _ in known]
        if batch is None:
            return new, *self._prefill_whole(new, room)
        logits_BV = self._forward(batch, *left_padded(fresh, self.device))
        if not new:
            return continued, batch, logits_BV
        new_batch, new_logits_BV = self._prefill_whole(new, room)
        every_row = [torch.arange(len(part.lengths_B), device=self.device) for part in (new_batch, batch)]
        return [*new, *continued], merge([new_batch, batch], every_row, room), torch.cat([new_logits_BV, logits_BV])

    def _prefill_whole(self, rows: Sequence[Row], room: int) -> tuple[KVBatch, Tensor]:
        """A batch of whole contexts, each distinct one computed once, and the logits after each."""
        distinct = list(dict.fromkeys(row.context for row in rows))
        # Without a KV cache the only layer holds token ids, and nothing can be shared.
        layers = 1 if self.obstacle else self.model.config.get_text_config(decoder=True).num_hidden_layers
        known = () if self.obstacle else self._beginning.of(distinct)
        if known:
            begun = self._beginning.batch
            if begun is None:  # computed once per policy
                begun = self._beginning.batch = KVBatch.empty(1, layers, len(known), self.device)
                self._forward(begun, *left_padded([known], self.device))
            all_alike_B = torch.zeros(len(distinct), dtype=torch.long, device=self.device)
            batch = begun.select(all_alike_B, max(map(len, distinct)) - len(known))
        else:
            batch = KVBatch.empty(len(distinct), layers, max(map(len, distinct)), self.device)
        logits_BV = self._forward(batch, *left_padded([context[len(known) :] for context in distinct], self.device))
        number = {context: index for index, context in enumerate(distinct)}
        rows_B = torch.tensor([number[row.context] for row in rows], device=self.device)
        return batch.select(rows_B, room), logits_BV[rows_B]

    def _forward(self, batch: KVBatch, ids_BT: Tensor, filled_BT: Tensor) -> Tensor:
        """Append columns to the batch and return the logits of the last one, `[B, V]`, in float32 or wider."""
        if self.obstacle:
            return uncached_logits(self.model, batch, ids_BT, filled_BT)
        return cached_logits(self._decode if ids_BT.shape[1] == 1 else self.model, batch, ids_BT, filled_BT)

    def _record(self, logits_BV: Tensor, live: Sequence[Row]) -> Tensor:
        """Draw one token per row, and append it to open rows with its log-probability and the entropy of the draw."""
        by_conversation = self.sampling.noise == "conversation"

        def noise(like_BV: Tensor) -> Tensor:
            return gumbels([row.noise for row in live], [len(row.ids) for row in live], like_BV.shape[1], like_BV)

        drawn = draw(
            logits_BV,
            self.sampling.temperature,
            greedy=self.sampling.greedy,
            noise=noise if by_conversation else None,
            generator=self._generator,
        )
        chosen_B, entropies_B = drawn.logprobs_B, drawn.entropies_B
        if self.sampling.precision == "double":
            # Adding 0 turns a negative zero into zero.
            chosen_B, entropies_B = (values_B.round(decimals=7).add(0.0) for values_B in (chosen_B, entropies_B))
        wide = torch.float32 if self.device.type == "mps" else torch.float64  # both hold every id and every value
        on_host = torch.stack([values_B.to(wide) for values_B in (drawn.tokens_B, chosen_B, entropies_B)], dim=1)
        read = [
            (row, int(token), logprob, entropy)
            for row, (token, logprob, entropy) in zip(live, on_host.tolist(), strict=True)
        ]
        if any(math.isnan(logprob) for _, _, logprob, _ in read):
            raise ValueError(
                "The policy expected logits that are numbers, found NaN or infinity: the model's weights are not "
                "finite, or overflow in its dtype. Go back to an earlier checkpoint with a lower learning rate, or "
                "use --dtype float32."
            )
        for row, token, logprob, entropy in read:
            if row.open:
                row.ids.append(token)
                row.logprobs.append(logprob)
                row.entropies.append(entropy)
                row.open = token not in self.renderer.stop_ids and len(row.ids) < row.allowed
        return drawn.tokens_B

    def _store_ended(self, batch: KVBatch, live: Sequence[Row]) -> None:
        """Keep the KV cache of the rows whose reply has ended. Their last sampled token is not in it yet."""
        ended = [(index, row) for index, row in enumerate(live) if not row.open]
        self._store.put(batch, [(index, row.key, row.context + tuple(row.ids[:-1])) for index, row in ended])
