"""Learners beside a real server: the model it serves, the same with noise, and the learner's own log-probabilities."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from heedful.types import Conversation, Message, Reply


def changed(model: Any, seed: int = 1, by: float = 0.02) -> Any:
    """A copy with noise on all weights, a part of each tensor's deviation."""
    import torch

    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(by * parameter.std() * torch.randn(parameter.shape, generator=generator))
    return other


def questions(count: int, words: int = 3) -> list[Conversation]:
    """Different conversations of one message."""
    return [
        Conversation(f"t{number}/0", (Message("user", " ".join(f"b{number + word}" for word in range(words))),))
        for number in range(count)
    ]


def own_logprobs(model: Any, context: Sequence[int], ids: Sequence[int], temperature: float) -> list[float]:
    """The learner's log-probabilities of `ids` after `context`."""
    import torch

    with torch.inference_mode():
        logits_TV = model(torch.tensor([[*context, *ids]])).logits[0].float() / temperature
    logprobs_TV = torch.log_softmax(logits_TV, -1)
    return [float(logprobs_TV[len(context) + at - 1, token]) for at, token in enumerate(ids)]


def largest_error(
    model: Any, renderer: Any, asked: Sequence[Conversation], replies: Sequence[Reply], t: float
) -> float:
    """The largest difference between the replies' log-probabilities and the learner's."""
    errors = []
    for conversation, reply in zip(asked, replies, strict=True):
        own = own_logprobs(model, renderer.context_ids(conversation), reply.ids, t)
        errors += [abs(ours - theirs) for ours, theirs in zip(own, reply.logprobs, strict=True)]
    return max(errors)
