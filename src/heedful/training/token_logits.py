"""Logits of a Hugging Face causal LM at the positions that predict trained tokens, and nowhere else.

Promise: the same logits as the whole forward pass, without the vocabulary-sized rows that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TokenLogits = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(ids_BT, trained_BT) -> logits_NV: one row per trained token, in row-major order."""


def token_logits(model: PreTrainedModel) -> TokenLogits:
    """How to get the logits that predict trained tokens from `model`.

    Where the model's output head applied to its last hidden states gives the model's logits bit for bit on a probe, the
    head runs at the wanted positions alone. Models that do more to their logits (soft-capping, scaling) fail the
    probe and run their whole forward pass.
    """
    return _head_rows(model) if _head_is_all(model) else _whole_rows(model)


# No attention mask and no positions are passed: padding stands on the right, and in a causal model a position reads
# only what is left of it, so padding reaches no trained token. Without a mask the fast causal kernel runs.


def _head_rows(model: PreTrainedModel) -> TokenLogits:
    decoder, head = model.get_decoder(), model.get_output_embeddings()

    def rows(ids_BT: torch.Tensor, trained_BT: torch.Tensor) -> torch.Tensor:
        hidden_BTD = decoder(input_ids=ids_BT, use_cache=False).last_hidden_state
        return head(hidden_BTD[:, :-1][trained_BT[:, 1:]])

    return rows


def _whole_rows(model: PreTrainedModel) -> TokenLogits:
    def rows(ids_BT: torch.Tensor, trained_BT: torch.Tensor) -> torch.Tensor:
        logits_BTV = model(input_ids=ids_BT, use_cache=False).logits
        return logits_BTV[:, :-1][trained_BT[:, 1:]]

    return rows


@torch.no_grad()
def _head_is_all(model: PreTrainedModel) -> bool:
    decoder, head = model.get_decoder(), model.get_output_embeddings()
    if decoder is None or decoder is model or head is None:
        return False
    probe = torch.arange(8, device=model.device).remainder(model.config.get_text_config().vocab_size)[None]
    whole = model(input_ids=probe, use_cache=False).logits
    parts = head(decoder(input_ids=probe, use_cache=False).last_hidden_state)
    return torch.equal(whole, parts.to(whole.dtype))
