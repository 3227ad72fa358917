"""What the tests of the batched sampler share: conversations, plain forward passes, and what was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.policies.kv import KVBatch  # noqa: E402
from heedful.policies.sampling import Sampling  # noqa: E402
from heedful.types import Conversation, Group, Message, Reply, Trajectory  # noqa: E402


class Contexts:
    """A renderer of conversations whose text is their ids."""

    stop_ids = frozenset({1, 50, 90})

    def context_ids(self, conversation: Any) -> tuple[int, ...]:
        ids: tuple[int, ...] = conversation.ids
        return ids

    def next_prompt(self, conversation: Any) -> Any:
        return None

    def parse(self, prompt: Any, ids: Sequence[int], logprobs: Sequence[float], entropies: Sequence[float] = ()) -> Any:
        return tuple(ids), tuple(logprobs), tuple(entropies)


def policy_of(model: Any, renderer: Any, seed: int = 0, version: int = 0, **sampling: Any) -> HFPolicy:
    return HFPolicy(model, renderer, Sampling(**{"tokens_per_turn": 12, **sampling}), seed=seed, version=version)


def ask(key: str, text: str, turn: int = 0) -> Conversation:
    return Conversation(key, (Message("user", text),), turn=turn)


def go_on(conversation: Conversation, reply: Reply, text: str) -> Conversation:
    said = Message("assistant", reply.text, reply.ids)
    messages = (*conversation.messages, said, Message("user", text))
    return Conversation(conversation.key, messages, turn=conversation.turn + 1)


def trajectories(groups: Sequence[Group]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group.trajectories]


@torch.no_grad()
def read_at_once(model: Any, ids: Sequence[int], temperature: float = 1.0) -> Any:
    """log softmax before each token but the first, from one forward pass without a cache, without padding."""
    logits_TV = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, :-1].double()
    return (logits_TV / temperature).log_softmax(-1)


def largest_error(model: Any, context: Sequence[int], reply: Reply) -> float:
    """Between the reported log-probabilities and a plain forward pass over context and reply."""
    logprobs_TV = read_at_once(model, [*context, *reply.ids])[len(context) - 1 :]
    expected_T = logprobs_TV.gather(1, torch.tensor(reply.ids)[:, None])[:, 0]
    return float((expected_T - torch.tensor(reply.logprobs, dtype=torch.float64)).abs().max())


def assert_drawn_from(expected_V: Any, replies: Sequence[Reply]) -> None:
    """The first tokens have these probabilities: a chi-square test over the frequent ones, at four sigma."""
    counts_V = torch.zeros_like(expected_V)
    for reply in replies:
        counts_V[reply.ids[0]] += 1
    expected_V = expected_V * len(replies)
    frequent = expected_V >= 5
    chi2 = float(((counts_V - expected_V)[frequent] ** 2 / expected_V[frequent]).sum())
    freedom = int(frequent.sum()) - 1
    assert freedom > 20
    assert chi2 < freedom + 4 * (2 * freedom) ** 0.5


def columns_read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The new columns of every forward pass from now on: `[B, T]`, True where there is a token."""
    read: list[Any] = []
    extend = KVBatch.extend

    def noted(self: KVBatch, new_BT: Any) -> Any:
        read.append(new_BT)
        return extend(self, new_BT)

    monkeypatch.setattr(KVBatch, "extend", noted)
    return read
