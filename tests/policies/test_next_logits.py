"""A model whose KV cache is not exact is sampled from whole forward passes, and says so."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import sampled  # noqa: E402
import tiny_architectures as tiny  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.types import Conversation, Message, Reply  # noqa: E402
from sampled import go_on, largest_error  # noqa: E402
from tiny_models import llama  # noqa: E402

CACHED = ("deepseek_v2", "deepseek_v3", "minicpm3", "glm4_moe_lite", "llama", "qwen2", "gpt2")
UNCACHED = ("gpt_oss", "openai-gpt")


def two_turns(policy: HFPolicy) -> list[tuple[Conversation, Reply]]:
    asked = [Conversation(str(row), (Message("user", "go " * row + "on"),)) for row in (1, 4, 4, 2)]
    asked[2] = Conversation("other", asked[1].messages)
    first = policy.respond(asked)
    again = [go_on(one, reply, "and") for one, reply in zip(asked, first, strict=True)]
    return [*zip(asked, first, strict=True), *zip(again, policy.respond(again), strict=True)]


def policy_of(model: Any, renderer: Renderer) -> HFPolicy:
    return sampled.policy_of(model, renderer, 3, tokens_per_turn=6)


def worst(model: Any, renderer: Renderer, replies: list[tuple[Conversation, Reply]]) -> float:
    """The largest error of a log-probability."""
    return max(largest_error(model, renderer.context_ids(conversation), reply) for conversation, reply in replies)


@pytest.mark.parametrize("kind", [*CACHED, *UNCACHED])
def test_sampled_log_probabilities_are_those_of_plain_forward_passes(
    kind: str, tokenizer: Any, renderer: Renderer
) -> None:
    model = tiny.built(kind, len(tokenizer))
    policy = policy_of(model, renderer)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        replies = two_turns(policy)
    assert worst(model, renderer, replies) < 1e-4
    assert bool(policy.obstacle) == (kind in UNCACHED)
    assert len([one for one in told if "exact and slow" in str(one.message)]) == (kind in UNCACHED)


def without_a_cache(model: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes `past_key_values` and keeps nothing in it."""
    forward = model.model.forward

    def forgetful(past_key_values: Any = None, attention_mask: Any = None, **named: Any) -> Any:
        if attention_mask is not None:
            attention_mask = attention_mask[..., -attention_mask.shape[-2] :]
        return forward(attention_mask=attention_mask, **named)

    monkeypatch.setattr(model.model, "forward", forgetful)
    return model


@pytest.mark.filterwarnings("ignore:The KV cache of LlamaForCausalLM cannot be used")
def test_a_model_that_keeps_no_cache_samples_as_one_that_does(
    tokenizer: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = two_turns(policy_of(llama(len(tokenizer)), renderer))
    model = without_a_cache(llama(len(tokenizer)), monkeypatch)
    policy = policy_of(model, renderer)
    replies = two_turns(policy)
    assert policy.obstacle.startswith("its log-probabilities differ from those of a plain forward pass by")
    assert [reply.ids for _, reply in replies] == [reply.ids for _, reply in expected]
    assert worst(model, renderer, replies) < 1e-9


def test_the_probe_runs_once_per_model_and_leaves_the_random_state(
    tokenizer: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = llama(len(tokenizer)).train()
    before, calls, forward = torch.get_rng_state(), [], model.forward
    monkeypatch.setattr(model, "forward", lambda *ids, **named: (calls.append(1), forward(*ids, **named))[1])
    assert [policy_of(model, renderer).obstacle for _ in range(3)] == ["", "", ""]
    # 3 x 3 plain passes; two for the prompts, six for the tokens of the longest thought.
    assert len(calls) == 9 + 2 + 6
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
