"""Each model is sampled in the fastest way that a probe finds exact, or from whole forward passes, and says so."""

from __future__ import annotations

import random
import warnings
from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import sampled  # noqa: E402
import tiny_architectures as tiny  # noqa: E402
from benchmarks.families.models import built  # noqa: E402
from heedful.models.chat.render import Renderer  # noqa: E402
from heedful.policies.growing import way_of  # noqa: E402
from heedful.policies.hf import HFPolicy  # noqa: E402
from heedful.policies.next_logits import Way  # noqa: E402
from heedful.policies.sampling import Sampling  # noqa: E402
from heedful.types import Conversation, Message, Reply  # noqa: E402
from sampled import Contexts, go_on, largest_error  # noqa: E402
from tiny_models import llama  # noqa: E402

CACHED = ("deepseek_v2", "deepseek_v3", "minicpm3", "glm4_moe_lite", "llama", "qwen2", "gpt2")
UNCACHED = ("openai-gpt",)
WAYS = {
    "qwen4_exp_text": Way.STATES,
    "mistral": Way.STATES,
    "gemma3n_text": Way.STATES,
    "gpt_oss": Way.STATES,
    "qwen3_next": Way.STATES,
    "lfm3": Way.STATES,
    "mamba2": Way.STATES,
    "mamba": Way.SINGLES,
    "nemotron_h": Way.PAIRS,
    "recurrent_gemma": Way.UNCACHED,
}


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


@pytest.mark.filterwarnings("ignore:The KV cache of RecurrentGemmaForCausalLM cannot be used")
@pytest.mark.parametrize("kind", WAYS)
def test_every_family_is_sampled_exactly_over_turns_in_its_fastest_way(kind: str) -> None:
    """Ragged rows beyond the window, some left out of a turn, and two that share a context."""
    model, rng = built(kind), random.Random(0)
    assert way_of(model)[0] is WAYS[kind]
    policy = HFPolicy(model, Contexts(), Sampling(tokens_per_turn=4, noise="conversation"), seed=1)
    talks = {str(row): tuple(rng.choices(range(160), k=length)) for row, length in enumerate((3, 40, 40, 97))}
    talks["4"] = talks["1"]
    for turn, asked in enumerate(("01234", "034", "01234")):
        policy.keep(set(talks))
        replies = cast(Any, policy.respond([cast(Any, SimpleNamespace(key=k, turn=turn, ids=talks[k])) for k in asked]))
        for key, (ids, logprobs, _) in zip(asked, replies, strict=True):
            with torch.no_grad():
                logits_TV = model(input_ids=torch.tensor([talks[key] + ids]), use_cache=False).logits[
                    0, -len(ids) - 1 : -1
                ]
            expected = logits_TV.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()
            assert logprobs == pytest.approx(expected, abs=1e-4)
            talks[key] += ids + tuple(rng.choices(range(160), k=rng.randint(1, 20)))


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
    assert 9 < len(calls) < 30  # 9 plain passes, and three turns
    probed = len(calls)
    assert policy_of(model, renderer).obstacle == ""
    assert len(calls) == probed
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_no_column_is_read_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """New memory may hold NaN. Turns of the probe begin beside turns that go on."""
    new_empty = torch.Tensor.new_empty

    def undefined(self: Any, *size: Any, **named: Any) -> Any:
        made = new_empty(self, *size, **named)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch.Tensor, "new_empty", undefined)
    assert way_of(llama(40)) == (Way.BUFFERS, "")
