"""Logits of a Hugging Face causal LM at the positions that predict trained tokens, and nowhere else.

Promise: the same logits as the whole forward pass, without the vocabulary-sized rows that nobody reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from heedful.models.attention import obstacle_to_shared_prompts
from heedful.models.shared_prompts import SharedPrompts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TokenLogits(Protocol):
    """One row of logits per trained token, in row-major order."""

    def __call__(
        self, ids_BT: torch.Tensor, trained_BT: torch.Tensor, prompts: SharedPrompts | None = None
    ) -> torch.Tensor:
        """Logits `[N, V]`. `prompts` are read once each, for models with plain causal attention only."""
        ...


def token_logits(model: PreTrainedModel) -> TokenLogits:
    """How to get the logits that predict trained tokens from `model`.

    Where the model's output head applied to its last hidden states gives the model's logits bit for bit on a probe, the
    head runs at the wanted positions alone. Models that do more to their logits (soft-capping, scaling) fail the
    probe and run their whole forward pass.
    """
    return _head_rows(model) if _head_is_all(model) else _whole_rows(model)


def keeps_prompts(model: PreTrainedModel) -> bool:
    """Whether prompts of `model` can be read once for several rows, as far as its window reaches."""
    return not obstacle_to_shared_prompts(model)


def hidden_before_trained(
    decoder: torch.nn.Module, ids_BT: torch.Tensor, trained_BT: torch.Tensor, prompts: SharedPrompts | None = None
) -> torch.Tensor:
    """The last hidden states from which the trained tokens are predicted, `[N, D]`; `prompts` as in `TokenLogits`."""
    if prompts is None:
        hidden_BTD = decoder(input_ids=ids_BT, use_cache=False).last_hidden_state
        return hidden_BTD[:, :-1][trained_BT[:, 1:]]
    cache = _read_prompts(decoder, ids_BT, prompts)
    own_BT = ids_BT[:, prompts.length :]
    hidden_BTD = decoder(input_ids=own_BT, past_key_values=cache, use_cache=True).last_hidden_state
    return hidden_BTD[:, :-1][trained_BT[:, prompts.length + 1 :]]


# No attention mask and no positions are passed: padding stands on the right, and in a causal model a position reads
# only what is left of it, so padding reaches no trained token. Without a mask the fast causal kernel runs.


def _head_rows(model: PreTrainedModel) -> TokenLogits:
    decoder, head = model.get_decoder(), model.get_output_embeddings()

    def rows(ids_BT: torch.Tensor, trained_BT: torch.Tensor, prompts: SharedPrompts | None = None) -> torch.Tensor:
        return head(hidden_before_trained(decoder, ids_BT, trained_BT, prompts))

    return rows


def _whole_rows(model: PreTrainedModel) -> TokenLogits:
    def rows(ids_BT: torch.Tensor, trained_BT: torch.Tensor, prompts: SharedPrompts | None = None) -> torch.Tensor:
        if prompts is None:
            logits_BTV = model(input_ids=ids_BT, use_cache=False).logits
            return logits_BTV[:, :-1][trained_BT[:, 1:]]
        cache = _read_prompts(model, ids_BT, prompts)
        logits_BTV = model(input_ids=ids_BT[:, prompts.length :], past_key_values=cache, use_cache=True).logits
        return logits_BTV[:, :-1][trained_BT[:, prompts.length + 1 :]]

    return rows


def _read_prompts(body: torch.nn.Module, ids_BT: torch.Tensor, prompts: SharedPrompts) -> DynamicCache:
    """The keys and values of each row's prompt; gradients of all rows of a prompt run back into its one pass."""
    cache = DynamicCache()
    body(input_ids=ids_BT[prompts.first_rows, : prompts.length], past_key_values=cache, use_cache=True)
    of_B = torch.tensor(prompts.of_B, device=ids_BT.device)
    for layer in cast(list[DynamicLayer], cache.layers):
        layer.keys, layer.values = cast(torch.Tensor, layer.keys)[of_B], cast(torch.Tensor, layer.values)[of_B]
    return cache


@torch.no_grad()
def _head_is_all(model: PreTrainedModel) -> bool:
    decoder, head = model.get_decoder(), model.get_output_embeddings()
    if decoder is None or decoder is model or head is None:
        return False
    probe = torch.arange(8, device=model.device).remainder(model.config.get_text_config().vocab_size)[None]
    whole = model(input_ids=probe, use_cache=False).logits
    parts = head(decoder(input_ids=probe, use_cache=False).last_hidden_state)
    return torch.equal(whole, parts.to(whole.dtype))
