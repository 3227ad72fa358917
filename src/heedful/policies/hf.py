"""The batched sampler: any Hugging Face causal LM with full attention as a policy over whole conversations.

Promise: the ids and log-probabilities it returns are those of the tokens sampled, equal to a teacher-forced forward
pass to rounding error; the keys and values of a conversation are computed once and kept over its turns, as long as it
goes on from what was read before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from heedful.plain_attention import longest_context, refuse_unless_plain_causal
from heedful.policies.kv import KVBatch, merge
from heedful.policies.sampling import Sampling
from heedful.types import Conversation, Prompt, Reply, Span


class ReplyRenderer(Protocol):
    """What the sampler asks of a renderer; `heedful.render.Renderer` is one."""

    @property
    def stop_ids(self) -> frozenset[int]: ...

    def next_prompt(self, conversation: Conversation) -> Prompt: ...

    def context_ids(self, conversation: Conversation) -> tuple[int, ...]: ...

    def read(
        self, prompt: Prompt, ids: Sequence[int], logprobs: Sequence[float], entropies: Sequence[float] = ()
    ) -> Reply: ...


@dataclass(slots=True)
class _Row:
    """One conversation while its reply grows."""

    key: str
    context: tuple[int, ...]
    allowed: int
    """Most tokens of this reply."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    open: bool = True


@dataclass(slots=True)
class _Place:
    """Where the cached tokens of a conversation lie."""

    piece: int
    row: int
    ids: tuple[int, ...]


class HFPolicy:
    """A policy over one model with fixed weights; make a new one after each update.

    Rows whose reply has ended leave the batch once half of it has; their cached tokens wait for the next turn.
    Prompts that several conversations share are computed once. `respond` leaves the model's train or eval state as it
    was; replies are sampled without dropout.

    Args:
        seed: of the sampling noise; the same seed, weights and conversations give the same replies.
        version: number of updates the weights have seen.

    Raises ValueError for a model whose attention is not plain causal, or does not take a mask of booleans.
    """

    def __init__(
        self, model: PreTrainedModel, renderer: ReplyRenderer, sampling: Sampling, *, seed: int, version: int = 0
    ) -> None:
        refuse_unless_plain_causal(model)
        if model.config._attn_implementation != "sdpa":
            # Eager attention adds the mask to its scores: True would count as one more nat, not as "seen".
            raise ValueError(
                f"HFPolicy expects a model with attn_implementation='sdpa', found "
                f"{model.config._attn_implementation!r}: its masks would be read wrongly. Load the model with "
                "attn_implementation='sdpa', or call model.set_attn_implementation('sdpa')."
            )
        self.model = model
        self.renderer = renderer
        self.sampling = sampling
        self.version = version
        self.device = model.device
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._layers = model.config.get_text_config(decoder=True).num_hidden_layers
        self._limit = longest_context(model) or 1 << 30
        self._places: dict[str, _Place] = {}
        self._pieces: list[KVBatch] = []

    @property
    def temperature(self) -> float:
        return self.sampling.temperature

    @torch.inference_mode()
    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One sampled reply per conversation. A context that fills the model's window gets an empty, cut reply.

        Raises MemoryError when the device has too little memory, ValueError when the model's logits are not numbers.
        """
        prompts = [self.renderer.next_prompt(conversation) for conversation in conversations]
        contexts = [self.renderer.context_ids(conversation) for conversation in conversations]
        fits = [row for row, context in enumerate(contexts) if len(context) < self._limit]
        replies = [_unanswered(prompt) for prompt in prompts]
        if not fits:
            return replies
        most = self.sampling.tokens_per_turn
        rows = [
            _Row(conversations[index].key, contexts[index], min(most, self._limit - len(contexts[index])))
            for index in fits
        ]
        training = self.model.training
        self.model.eval()
        try:
            self._sample(rows)
        except torch.OutOfMemoryError as error:
            longest = max(len(row.context) for row in rows)
            raise MemoryError(
                f"The device ran out of memory while {len(rows)} conversations of up to {longest} tokens were sampled; "
                "lower --groups, --group-size or --sampling.tokens-per-turn, and in evaluations --evaluation.at-once."
            ) from error
        finally:
            self.model.train(training)
        for index, row in zip(fits, rows, strict=True):
            replies[index] = self.renderer.read(prompts[index], row.ids, row.logprobs, row.entropies)
        return replies

    def _sample(self, rows: Sequence[_Row]) -> None:
        """Grow every row's reply until it ends."""
        live = list(rows)  # row number i of the batch continues live[i]
        batch, logits_BV = self._prefill(live)
        self._pieces, self._places = [], {}
        while True:
            tokens_B = self._record(logits_BV, live)
            going = [index for index, row in enumerate(live) if row.open]
            if not going:
                break
            if 2 * len(going) <= len(live):
                self._park(batch, live)
                chosen_B = torch.tensor(going, device=self.device)
                live = [live[index] for index in going]
                batch = batch.select(chosen_B, max(row.allowed - len(row.ids) for row in live))
                tokens_B = tokens_B[chosen_B]
            feeds_B = torch.tensor([row.open for row in live], device=self.device)
            logits_BV = self._forward(batch, tokens_B[:, None], feeds_B[:, None])
        self._park(batch, live)

    def _prefill(self, rows: Sequence[_Row]) -> tuple[KVBatch, Tensor]:
        """The batch after every context has been read, and the logits that follow it."""
        room = max(row.allowed for row in rows)
        places = [self._places[row.key] for row in rows if row.key in self._places]
        if len(places) == len(rows) and all(
            len(place.ids) < len(row.context) and row.context[: len(place.ids)] == place.ids
            for place, row in zip(places, rows, strict=True)
        ):
            fresh = [row.context[len(place.ids) :] for place, row in zip(places, rows, strict=True)]
            batch = self._gather(places, max(map(len, fresh)) + room)
            return batch, self._forward(batch, *self._left_padded(fresh))
        self._pieces, self._places = [], {}  # nothing of them is read again: free them before the new ones fill
        distinct = list(dict.fromkeys(row.context for row in rows))
        batch = KVBatch.empty(len(distinct), self._layers, max(map(len, distinct)), self.device)
        logits_BV = self._forward(batch, *self._left_padded(distinct))
        number = {context: index for index, context in enumerate(distinct)}
        rows_B = torch.tensor([number[row.context] for row in rows], device=self.device)
        return batch.select(rows_B, room), logits_BV[rows_B]

    def _gather(self, places: Sequence[_Place], room: int) -> KVBatch:
        """The cached rows at `places`, in their order."""
        pieces = sorted({place.piece for place in places})
        rows = [[index for index, place in enumerate(places) if place.piece == piece] for piece in pieces]
        merged = merge(
            [self._pieces[piece] for piece in pieces],
            [torch.tensor([places[index].row for index in indices], device=self.device) for indices in rows],
            room,
        )
        order = [index for indices in rows for index in indices]
        if order == list(range(len(places))):
            return merged
        inverse = torch.empty(len(order), dtype=torch.long, device=self.device)
        inverse[torch.tensor(order, device=self.device)] = torch.arange(len(order), device=self.device)
        return merged.select(inverse, room)

    def _left_padded(self, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """ids and the mask that is True where there is a token, right-aligned."""
        width = max(map(len, sequences))
        ids = [[0] * (width - len(sequence)) + list(sequence) for sequence in sequences]
        filled = [[False] * (width - len(sequence)) + [True] * len(sequence) for sequence in sequences]
        return torch.tensor(ids, device=self.device), torch.tensor(filled, device=self.device)

    def _forward(self, batch: KVBatch, ids_BT: Tensor, filled_BT: Tensor) -> Tensor:
        """Append columns to the batch and return the logits of the last one, `[B, V]`, in float32 or wider."""
        mask, positions_BT = batch.extend(filled_BT)
        output = self.model(
            input_ids=ids_BT,
            attention_mask=mask,
            position_ids=positions_BT,
            past_key_values=batch.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits_BV = output.logits[:, -1]
        return logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32))

    def _record(self, logits_BV: Tensor, live: Sequence[_Row]) -> Tensor:
        """Draw one token per row and note it, with its log-probability and the entropy it was drawn from."""
        logprobs_BV = torch.log_softmax(logits_BV / self.sampling.temperature, dim=-1)
        if bool(logprobs_BV[:, 0].isnan().any()):  # one entry tells: the sum over the row is in each of them
            raise ValueError(
                "The policy expected logits that are numbers, found NaN or infinity: the model's weights are not "
                "finite, or overflow in its dtype. Go back to an earlier checkpoint with a lower learning rate, or "
                "use --dtype float32."
            )
        probabilities_BV = logprobs_BV.exp()
        if self.sampling.greedy:
            tokens_B = logprobs_BV.argmax(-1)
        else:
            tokens_B = torch.multinomial(probabilities_BV, 1, generator=self._generator)[:, 0]
        chosen = logprobs_BV.gather(1, tokens_B[:, None])[:, 0].tolist()
        # A logit of -inf has probability 0 and adds nothing, but 0 * -inf is NaN.
        entropies = -(probabilities_BV * logprobs_BV.clamp(min=-1e30)).sum(-1)
        for row, token, logprob, entropy in zip(live, tokens_B.tolist(), chosen, entropies.tolist(), strict=True):
            if row.open:
                row.ids.append(token)
                row.logprobs.append(logprob)
                row.entropies.append(entropy)
                row.open = token not in self.renderer.stop_ids and len(row.ids) < row.allowed
        return tokens_B

    def _park(self, batch: KVBatch, live: Sequence[_Row]) -> None:
        """Remember where the finished rows of `batch` lie. Their last sampled token is not cached yet."""
        for index, row in enumerate(live):
            if not row.open:
                self._places[row.key] = _Place(len(self._pieces), index, row.context + tuple(row.ids[:-1]))
        self._pieces.append(batch)


def _unanswered(prompt: Prompt) -> Reply:
    return Reply(prompt, (), "", (), (), Span(0, 0), Span(0, 0), closed=False, cut=True)
