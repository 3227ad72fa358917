"""Requests to the letter, and answers that are checked on arrival."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from heedful.policies.servers import Draw, ForeignAnswer, OpenAIText, OpenAITokens, Usage, Vllm

DRAW = Draw(temperature=0.7, greedy=False, most=3, seed=2**31 + 5, stop_ids=(9, 2), salt="run-4")

ANSWER = {
    "choices": [
        {
            "index": 0,
            "token_ids": [5, 9],
            "logprobs": {"content": [{"token_id": 5, "logprob": -0.5}, {"token_id": 9, "logprob": 1e-6}]},
            "finish_reason": "stop",
            "weight_versions": [{"version": "v4", "start": 0, "end": 2}],
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
}


def test_a_request_to_vllm_sends_every_sampling_field() -> None:
    call = Vllm().draw((1, 2), DRAW, "policy")
    assert call.path == "/inference/v1/generate"
    assert call.body == {
        "model": "policy",
        "token_ids": [1, 2],
        "cache_salt": "run-4",
        "sampling_params": {
            "temperature": 0.7,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "n": 1,
            "seed": 5,
            "max_tokens": 3,
            "stop_token_ids": [9, 2],
            "ignore_eos": True,
            "logprobs": 0,
            "detokenize": False,
        },
    }
    assert json.dumps(call.body)


def test_the_likeliest_token_is_asked_for_with_temperature_0() -> None:
    greedy = Draw(temperature=0.7, greedy=True, most=3, seed=0)
    for call in (Vllm().draw((1,), greedy, "m"), OpenAITokens().draw((1,), greedy, "m")):
        assert call.body is not None
        assert (call.body.get("sampling_params") or call.body)["temperature"] == 0.0
        assert "cache_salt" not in call.body


def test_an_answer_of_vllm_is_read() -> None:
    drawn = Vllm().drawn(ANSWER, 3)
    assert drawn.ids == (5, 9)
    assert drawn.logprobs == (-0.5, 0.0), "rounding above 0 is 0"
    assert drawn.versions == ("v4",)
    assert drawn.usage == Usage(3, 2, 1)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("choices",), [], "one choice"),
        (("choices", 0, "token_ids"), None, "token_ids, found None"),
        (("choices", 0, "token_ids"), [], r"1 to 3 whole numbers as token_ids, found \[\]"),
        (("choices", 0, "token_ids"), [1, 2, 3, 4], "1 to 3 whole numbers"),
        (("choices", 0, "token_ids"), [5, "9"], "whole numbers"),
        (("choices", 0, "token_ids"), [5, 8], "each of the 2 sampled ids"),
        (("choices", 0, "logprobs"), None, "logprobs.content"),
        (("choices", 0, "logprobs", "content", 0, "logprob"), None, "at most 0, .* found None"),
        (("choices", 0, "logprobs", "content", 0, "logprob"), 0.3, "at most 0"),
        (("choices", 0, "logprobs", "content", 0, "logprob"), -9999.0, "possible"),
        (("choices", 0, "logprobs", "content", 0, "logprob"), float("nan"), "at most 0"),
        (("choices", 0, "finish_reason"), "abort", "ended with 'abort'"),
        (("choices", 0, "finish_reason"), "content_filter", "ended with 'content_filter'"),
    ],
)
def test_a_foreign_answer_is_refused_with_a_sentence(path: tuple[Any, ...], value: Any, complaint: str) -> None:
    tree: Any = copy.deepcopy(ANSWER)
    at = tree
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(ForeignAnswer, match=complaint):
        Vllm().drawn(tree, 3)


@pytest.mark.parametrize("tree", [None, "ok", {"choices": [3]}])
def test_what_is_no_answer_at_all_is_refused(tree: Any) -> None:
    for read in (
        lambda: Vllm().drawn(tree, 3),
        lambda: OpenAITokens().drawn(tree, 3),
        lambda: OpenAIText().written(tree),
    ):
        with pytest.raises(ForeignAnswer):
            read()


def test_prompts_are_scored_by_both_token_dialects() -> None:
    rows = [None, {"2": {"logprob": -1.0}, "7": {"logprob": -0.1}}, {"3": {"logprob": -2.0}}]
    call = Vllm().score((1, 2, 3), "policy", 0.5, "s")
    assert call.body is not None
    assert call.body["sampling_params"]["prompt_logprobs"] == 0
    assert call.body["sampling_params"]["max_tokens"] == 1
    assert call.body["sampling_params"]["temperature"] == 0.5
    assert Vllm().scored(ANSWER | {"prompt_logprobs": rows}, (1, 2, 3)) == (-1.0, -2.0)
    in_choice = {"choices": [ANSWER["choices"][0] | {"prompt_logprobs": rows}]}  # type: ignore[index, operator]
    assert OpenAITokens().scored(in_choice, (1, 2, 3)) == (-1.0, -2.0)
    assert (OpenAITokens().score((1, 2, 3), "m").body or {})["prompt_logprobs"] == 0
    for ids, complaint in (((1, 2), "for 2 ids"), ((1, 4, 3), "found None")):
        with pytest.raises(ForeignAnswer, match=complaint):
            Vllm().scored(ANSWER | {"prompt_logprobs": rows}, ids)


def test_completions_with_ids_are_read_and_a_server_of_text_alone_is_named() -> None:
    choice = {"token_ids": [5, 9], "logprobs": {"token_logprobs": [-0.5, -0.25]}, "text": "x", "finish_reason": "stop"}
    drawn = OpenAITokens().drawn({"choices": [choice]}, 3)
    assert (drawn.ids, drawn.logprobs, drawn.versions, drawn.usage) == ((5, 9), (-0.5, -0.25), (), Usage())
    body = OpenAITokens().draw((1, 2), DRAW, "policy").body
    assert body is not None
    assert (body["prompt"], body["return_token_ids"], body["cache_salt"]) == ([1, 2], True, "run-4")
    with pytest.raises(ForeignAnswer, match="returns text alone"):
        OpenAITokens().drawn({"choices": [{"text": "x"}]}, 3)


def test_chat_sends_only_openais_own_fields() -> None:
    call = OpenAIText().draw([("user", "hi")], DRAW, "m")
    assert call.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.7,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": 5,
        "max_tokens": 3,
    }
    assert set(call.optional) == {"top_p", "presence_penalty", "frequency_penalty", "seed", "max_tokens"}


def test_an_answer_of_chat_without_a_content_is_an_empty_text() -> None:
    written = OpenAIText().written({"choices": [{"message": {"content": None}, "finish_reason": "stop"}]})
    assert (written.text, written.thought, written.cut) == ("", "", False)
    with pytest.raises(ForeignAnswer, match="a message with a text, or with parts"):
        OpenAIText().written({"choices": [{"message": {"content": 3}}]})
