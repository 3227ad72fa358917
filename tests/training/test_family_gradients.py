"""Gradients of a batch equal those of one row at a time, for families with windows, sinks and recurrent states."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.families.models import FAMILIES, VOCABULARY, built
from heedful.models.forward.shared_prompts import SharedPrompts
from heedful.models.forward.token_logits import keeps_prompts, token_logits

LENGTHS = (34, 29, 21)
PROMPT = 18
"""Tokens that all rows begin with: more than a window of 8."""


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Ids `[B, T]`, padded on the right, and the mask of trained tokens: those behind the prompt."""
    generator = torch.Generator().manual_seed(0)
    ids_BT = torch.randint(1, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=generator)
    ids_BT[:, :PROMPT] = ids_BT[:1, :PROMPT]
    places_T, lengths_B1 = torch.arange(max(LENGTHS)), torch.tensor(LENGTHS)[:, None]
    ids_BT[places_T >= lengths_B1] = 0
    return ids_BT, (places_T >= PROMPT) & (places_T < lengths_B1)


def gradient(model: Any, logits_NV: torch.Tensor, ids_N: torch.Tensor) -> None:
    """Add the gradient of the log-probabilities, each with a weight of its own token."""
    logprobs_N = logits_NV.float().log_softmax(-1).gather(1, ids_N[:, None])[:, 0]
    (logprobs_N * (1 + ids_N % 3)).sum().backward()


def taken(model: Any) -> torch.Tensor:
    found = torch.cat([torch.zeros(0), *(p.grad.flatten() for p in model.parameters() if p.grad is not None)])
    model.zero_grad()
    return found


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "gpt_oss", "qwen3_5_text", "falcon_h1", "mamba2"])
def test_a_padded_batch_and_shared_prompts_have_the_gradient_of_single_rows(kind: str) -> None:
    model, (ids_BT, trained_BT) = built(kind), rows()
    for ids_T, trained_T, length in zip(ids_BT, trained_BT, LENGTHS, strict=True):
        logits_TV = model(input_ids=ids_T[None, :length], use_cache=False).logits[0]
        gradient(model, logits_TV[PROMPT - 1 : length - 1], ids_T[trained_T])
    alone = taken(model)
    shared = SharedPrompts(PROMPT - 1, (0,) * len(LENGTHS), PROMPT // 2)
    for prompts in [None, shared] if keeps_prompts(model) else [None]:
        gradient(model, token_logits(model)(ids_BT, trained_BT, prompts), ids_BT[trained_BT])
        assert float((taken(model) - alone).norm() / alone.norm()) < 1e-5
    assert keeps_prompts(model) == (FAMILIES[kind].layers == "full" or bool(FAMILIES[kind].window))
