"""The batched sampler: any Hugging Face causal LM with full attention as a policy over whole conversations.

Promise: the ids and log-probabilities it returns are those of the tokens sampled, equal to a teacher-forced forward
pass to rounding error; the keys and values of a conversation are computed once and kept over its turns, as long as it
goes on from what was read before - also where only some of the conversations are asked at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from heedful.models.attention import longest_context, refuse_unless_plain_causal
from heedful.policies.kept import KeptCaches
from heedful.policies.kv import KVBatch, merge
from heedful.policies.noise import gumbels
from heedful.policies.rows import ReplyRenderer, Row
from heedful.policies.sampling import Sampling
from heedful.seeds import derive
from heedful.types import Conversation, Reply

JOIN_EVERY = 4
"""Tokens between two moments at which conversations that have come meanwhile join those whose replies are growing."""


class HFPolicy:
    """A policy over one model with fixed weights; make a new one after each update.

    Rows whose reply has ended leave the batch once half of it has; their cached tokens wait for the next turn.
    Prompts that several conversations share are computed once where they are asked together. `respond` leaves the
    model's train or eval state as it was; replies are sampled without dropout.

    Args:
        seed: of the sampling noise; the same seed, weights and conversations give the same replies. With noise of its
            own, the same reply whoever else is asked: seed, `Conversation.key` and `Conversation.turn` decide.
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
        self.model = _in_double(model) if sampling.precision == "double" else model
        self.renderer = renderer
        self.sampling = sampling
        self.version = version
        self.device = model.device
        self._seed = seed
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._layers = model.config.get_text_config(decoder=True).num_hidden_layers
        self._limit = longest_context(model) or 1 << 30
        self._caches = KeptCaches(self.device)
        self._going_on: Collection[str] = ()

    @property
    def temperature(self) -> float:
        return self.sampling.temperature

    @property
    def parallel(self) -> int:
        return 1

    @property
    def draws_together(self) -> bool:
        return not self.sampling.greedy and self.sampling.noise != "conversation"

    def keep(self, keys: Collection[str]) -> None:
        """Hold the caches of these conversations through the next `respond`, even if it does not ask for them."""
        self._going_on = keys

    @torch.inference_mode()
    def respond(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One sampled reply per conversation. A context that fills the model's window gets an empty, cut reply.

        Raises MemoryError when the device has too little memory, ValueError when the model's logits are not numbers.
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
        """Answer conversations as they come: newcomers join those whose replies are growing, every few tokens.

        `arrivals(wait)` gives the conversations that have come since it was asked last; with `wait`, when nobody is
        there any more, it returns as soon as somebody has come, or with nobody: then nobody will. Each reply is handed
        over with the conversation's key at the token that ends it. Raises what `respond` raises.
        """
        live: list[Row] = []
        batch, logits_BV = KVBatch.empty(0, self._layers, 0, self.device), torch.empty(0, 0, device=self.device)
        with self._sampling(live):
            while True:
                came = [self._row(conversation) for conversation in arrivals(not live)]
                if not came and not live:
                    return
                for row in came:
                    if row.allowed < 1:
                        hand_over(row.key, row.reply(self.renderer))
                if rows := [row for row in came if row.allowed > 0]:
                    batch, logits_BV = self._join(live, batch, logits_BV, rows)
                for _ in range(JOIN_EVERY):
                    if not live:
                        break
                    batch, logits_BV = self._grow(live, batch, logits_BV, hand_over)

    def _join(self, live: list[Row], batch: KVBatch, logits_BV: Tensor, rows: Sequence[Row]) -> tuple[KVBatch, Tensor]:
        """Read the contexts of `rows` and put these behind the open ones of `live`, in place."""
        came, theirs, first_logits_BV = self._prefill(rows)
        going = [index for index, row in enumerate(live) if row.open]
        live[:] = [*(live[index] for index in going), *came]
        if not going:
            return theirs, first_logits_BV
        room = max(row.allowed - len(row.ids) for row in live)
        chosen = [torch.tensor(going, device=self.device), torch.arange(len(came), device=self.device)]
        return merge([batch, theirs], chosen, room), torch.cat([logits_BV[chosen[0]], first_logits_BV])

    def _grow(
        self, live: list[Row], batch: KVBatch, logits_BV: Tensor, hand_over: Callable[[str, Reply], None]
    ) -> tuple[KVBatch, Tensor]:
        """One token for each open row of `live`; those that end are held for their next turn and handed over."""
        before = [index for index, row in enumerate(live) if row.open]
        tokens_B = self._record(logits_BV, live)
        if ended := [index for index in before if not live[index].open]:
            self._park(batch.select(torch.tensor(ended, device=self.device), 0), [live[index] for index in ended])
            for index in ended:
                hand_over(live[index].key, live[index].reply(self.renderer))
        going = [index for index in before if live[index].open]
        if not going:
            live.clear()
            return batch, logits_BV
        if 2 * len(going) <= len(live):
            chosen_B = torch.tensor(going, device=self.device)
            live[:] = [live[index] for index in going]
            batch = batch.select(chosen_B, max(row.allowed - len(row.ids) for row in live))
            tokens_B = tokens_B[chosen_B]
        feeds_B = torch.tensor([row.open for row in live], device=self.device)
        return batch, self._forward(batch, tokens_B[:, None], feeds_B[:, None])

    def _row(self, conversation: Conversation) -> Row:
        context = self.renderer.context_ids(conversation)
        return Row(
            key=conversation.key,
            prompt=self.renderer.next_prompt(conversation),
            context=context,
            allowed=min(self.sampling.tokens_per_turn, self._limit - len(context)),
            noise=derive(self._seed, conversation.key, conversation.turn),
        )

    @contextmanager
    def _sampling(self, rows: Sequence[Row]) -> Iterator[None]:
        """The model in evaluation mode; `rows` are those to blame if the memory does not suffice."""
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
        """Grow every row's reply until it ends."""
        live, batch, logits_BV = self._prefill(rows)  # row number i of the batch continues live[i]
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

    def _prefill(self, rows: Sequence[Row]) -> tuple[list[Row], KVBatch, Tensor]:
        """The batch after every context has been read, its rows in the batch's order, and the logits that follow."""
        room = max(row.allowed for row in rows)
        found = [(row, self._caches.find(row.key, row.context)) for row in rows]
        known = [(row, place) for row, place in found if place is not None]
        new = [row for row, place in found if place is None]
        fresh = [row.context[len(place.ids) :] for row, place in known]
        width = max(map(len, fresh), default=0) + room
        cached = self._caches.gather([place for _, place in known], width) if known else None
        # Nothing of what was asked is read again: free it before new caches fill.
        asked = {row.key for row in rows}
        self._caches.keep_only({key for key in self._going_on if key not in asked})
        going_on = [row for row, _ in known]
        if cached is None:
            return new, *self._read(new, room)
        logits_BV = self._forward(cached, *self._left_padded(fresh))
        if not new:
            return going_on, cached, logits_BV
        begun, first_logits_BV = self._read(new, room)
        everyone = [torch.arange(len(batch.lengths_B), device=self.device) for batch in (begun, cached)]
        return [*new, *going_on], merge([begun, cached], everyone, room), torch.cat([first_logits_BV, logits_BV])

    def _read(self, rows: Sequence[Row], room: int) -> tuple[KVBatch, Tensor]:
        """A batch of whole contexts, each distinct one read once, and the logits that follow."""
        distinct = list(dict.fromkeys(row.context for row in rows))
        batch = KVBatch.empty(len(distinct), self._layers, max(map(len, distinct)), self.device)
        logits_BV = self._forward(batch, *self._left_padded(distinct))
        number = {context: index for index, context in enumerate(distinct)}
        rows_B = torch.tensor([number[row.context] for row in rows], device=self.device)
        return batch.select(rows_B, room), logits_BV[rows_B]

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

    def _record(self, logits_BV: Tensor, live: Sequence[Row]) -> Tensor:
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
        elif self.sampling.noise == "conversation":
            places_B = [len(row.ids) for row in live]
            noise_BV = gumbels([row.noise for row in live], places_B, logprobs_BV.shape[1], logprobs_BV)
            tokens_B = noise_BV.add_(logprobs_BV).argmax(-1)
        else:
            tokens_B = torch.multinomial(probabilities_BV, 1, generator=self._generator)[:, 0]
        chosen_B = logprobs_BV.gather(1, tokens_B[:, None])[:, 0]
        # A logit of -inf has probability 0 and adds nothing, but 0 * -inf is NaN.
        entropies_B = -(probabilities_BV * logprobs_BV.clamp(min=-1e30)).sum(-1)
        if self.sampling.precision == "double":
            # Adding 0 takes the sign from a negative zero.
            chosen_B, entropies_B = (values_B.round(decimals=7).add(0.0) for values_B in (chosen_B, entropies_B))
        read = zip(live, tokens_B.tolist(), chosen_B.tolist(), entropies_B.tolist(), strict=True)
        for row, token, logprob, entropy in read:
            if row.open:
                row.ids.append(token)
                row.logprobs.append(logprob)
                row.entropies.append(entropy)
                row.open = token not in self.renderer.stop_ids and len(row.ids) < row.allowed
        return tokens_B

    def _park(self, batch: KVBatch, live: Sequence[Row]) -> None:
        """Hold the finished rows of `batch`. Their last sampled token is not cached yet."""
        ended = [(index, row) for index, row in enumerate(live) if not row.open]
        self._caches.park(batch, [(index, row.key, row.context + tuple(row.ids[:-1])) for index, row in ended])


def _in_double(model: PreTrainedModel) -> PreTrainedModel:
    """A copy in float64. Raises ValueError for a device that has no such numbers."""
    if model.device.type == "mps":
        raise ValueError("--sampling.precision double needs float64, which mps does not have; use --device cpu.")
    return copy.deepcopy(model).double()
