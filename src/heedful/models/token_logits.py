"""Logits of a Hugging Face causal LM at the positions that predict trained tokens, and nowhere else.

The logits equal the ones of the whole forward pass. Unneeded rows, each of the vocabulary's size, are not computed.
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
        """Logits `[N, V]`. `prompts` are computed once each. This needs a model with plain causal attention."""
        ...


def token_logits(model: PreTrainedModel) -> TokenLogits:
    """The function that gives the logits of `model` that predict trained tokens.

    A probe applies the output head to the last hidden states. If this gives the model's logits bit for bit, the head
    runs only at the wanted positions. Models that also cap or scale their logits fail the probe and run their whole
    forward pass.
    """
    return _head_rows(model) if _head_is_all(model) else _whole_rows(model)


def keeps_prompts(model: PreTrainedModel) -> bool:
    """Whether a prompt of `model` can be computed once for several rows, within its window."""
    return not obstacle_to_shared_prompts(model)


def hidden_before_trained(
    decoder: torch.nn.Module, ids_BT: torch.Tensor, trained_BT: torch.Tensor, prompts: SharedPrompts | None = None
) -> torch.Tensor:
    """The last hidden states from which the trained tokens are predicted, `[N, D]`. `prompts` as in `TokenLogits`."""
    if prompts is None:
        hidden_BTD = decoder(input_ids=ids_BT, use_cache=False).last_hidden_state
        return hidden_BTD[:, :-1][trained_BT[:, 1:]]
    cache = _read_prompts(decoder, ids_BT, prompts)
    own_BT = ids_BT[:, prompts.length :]
    hidden_BTD = decoder(input_ids=own_BT, past_key_values=cache, use_cache=True).last_hidden_state
    return hidden_BTD[:, :-1][trained_BT[:, prompts.length + 1 :]]


# No attention mask and no positions are passed. Padding is on the right, and a causal model attends only to the left,
# so padding reaches no trained token. Without a mask the fast causal kernel runs.


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
    """The KV cache of each row's prompt. Gradients of all rows of a prompt flow back into its single pass."""
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
