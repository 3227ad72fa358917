"""The batched sampler: any Hugging Face causal LM as a policy over whole conversations.

The reported ids and log-probabilities belong to the sampled tokens. They equal a teacher-forced forward pass to
rounding error. The states of a conversation are kept over its turns. No token is computed twice while the context only
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

from heedful.models.forward.attention import longest_context_of, refuse_unless_causal
from heedful.models.forward.exactness import evaluating
from heedful.policies.drawing import draw, gumbels
from heedful.policies.growing import Growing, way_of
from heedful.policies.kv import KVStore
from heedful.policies.next_logits import Decode, Reader
from heedful.policies.rows import ReplyRenderer, Row
from heedful.policies.sampling import Sampling
from heedful.types import Conversation, Reply

JOIN_EVERY = 4
"""Tokens that are sampled between two moments at which new conversations can join the batch.

Even: no row may wait for the second token of a pair then (`next_logits.Way.PAIRS`).
"""


class HFPolicy:
    """A policy over one model with fixed weights. Make a new one after each update.

    The states of a conversation are kept for its next turn. Equal contexts in one call are computed once. Replies are
    sampled without dropout. The model's train or eval state is restored afterwards.

    Args:
        seed: seeds the sampling noise. The same seed, weights and conversations give the same replies. With the noise
            `conversation`, a reply depends on the seed, `Conversation.key` and `Conversation.turn`, and not on the
            other conversations of the call.
        version: number of updates the weights have seen.
        decode: computes single columns of tokens in the place of the model, such as a compiled form of it. Used with
            `Way.BUFFERS` alone, and not in double precision.

    Before the first token a probe compares ways to read new tokens with plain forward passes (`growing.way_of`). If
    none is exact, replies are sampled from one whole forward pass per token, with a warning.

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
        if double:  # the usual products of experts know no float64
            self.model.set_experts_implementation("eager")
        self._decode: Decode = self.model if double or decode is None else decode
        self.renderer = renderer
        self.sampling = sampling
        self.version = version
        self.device = model.device
        self._seed = seed
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._limit = longest_context_of(model.config) or 1 << 30
        self._store = KVStore()
        self._open: Collection[str] = ()

    @property
    def obstacle(self) -> str:
        """Why replies are sampled without a KV cache, as half a sentence. Empty if the cache is exact.

        The first call for a model reads a few tokens. Later calls remember its result.
        """
        return way_of(self._given)[1]

    @property
    def way(self) -> str:
        """How new tokens are read: the name of a `next_logits.Way` in lower case."""
        return way_of(self._given)[0].name.lower()

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
        if open_rows := [row for row in rows if row.allowed > 0]:
            with self._sampling(open_rows):
                growing = self._growing()
                growing.join(open_rows, self._open)
                while growing.live:
                    growing.grow()
        return [row.reply(self.renderer) for row in rows]

    @torch.inference_mode()
    def serve(
        self, arrivals: Callable[[bool], Sequence[Conversation]], hand_over: Callable[[str, Reply], None]
    ) -> None:
        """Answer conversations with continuous batching: every few tokens new ones join the batch.

        For `arrivals` and `hand_over` see `protocols.ContinuousBatching`. Each reply is handed over right after
        the token that ends it. Raises the errors of `respond`.
        """
        growing = self._growing()
        with self._sampling(growing.live):
            while True:
                new = [self._row(conversation) for conversation in arrivals(not growing.live)]
                if not new and not growing.live:
                    return
                for row in new:
                    if row.allowed < 1:
                        hand_over(row.key, row.reply(self.renderer))
                if rows := [row for row in new if row.allowed > 0]:
                    growing.join(rows, self._open)
                for _ in range(JOIN_EVERY):
                    for row in growing.grow() if growing.live else ():
                        hand_over(row.key, row.reply(self.renderer))

    def _growing(self) -> Growing:
        reader = Reader(self.model, way_of(self._given)[0], self._decode)
        return Growing(reader, self._record, self._store)

    def _row(self, conversation: Conversation) -> Row:
        return Row.of(conversation, self.renderer, self.sampling.tokens_per_turn, self._limit, self._seed)

    @contextmanager
    def _sampling(self, rows: Sequence[Row]) -> Iterator[None]:
        """The model in evaluation mode. An out-of-memory error is raised as a sentence about `rows`."""
        try:
            with evaluating(self.model):
                yield
        except torch.OutOfMemoryError as error:
            longest = max((len(row.context) for row in rows), default=0)
            raise MemoryError(
                f"The device ran out of memory while {len(rows)} conversations of up to {longest} tokens were sampled; "
                "lower --groups, --group-size or --sampling.tokens-per-turn, and in evaluations --evaluation.at-once."
            ) from error

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
        columns = (drawn.tokens_B, chosen_B, entropies_B)
        on_host = torch.stack([values_B.to(wide) for values_B in columns], dim=1).tolist()
        if any(math.isnan(logprob) for _, logprob, _ in on_host):
            raise ValueError(
                "The policy expected logits that are numbers, found NaN or infinity: the model's weights are not "
                "finite, or overflow in its dtype. Go back to an earlier checkpoint with a lower learning rate, or "
                "use --dtype float32."
            )
        for row, (token, logprob, entropy) in zip(live, on_host, strict=True):
            if row.open:
                row.ids.append(int(token))
                row.logprobs.append(logprob)
                row.entropies.append(entropy)
                row.open = token not in self.renderer.stop_ids and len(row.ids) < row.allowed
        return drawn.tokens_B
