"""Good answers of inference servers, for damage, with the readers that check them on arrival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heedful.policies.servers.dialects import OpenAIText, OpenAITokens, Vllm, models
from heedful.policies.servers.examination import settings_in, windows_in

_SCORES: list[Any] = [None, {"2": {"logprob": -1.0, "rank": 3}}, {"3": {"logprob": -2.0}}]
_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
_ENTRIES = [{"token_id": 5, "logprob": -0.5}, {"token_id": 9, "logprob": 1e-6}]
_SPANS = [{"version": "v4", "start": 0, "end": 2}]
_DRAWN = {"token_ids": [5, 9], "logprobs": {"content": _ENTRIES}, "weight_versions": _SPANS, "finish_reason": "stop"}
_COMPLETED = {"token_ids": [5, 9], "logprobs": {"token_logprobs": [-0.5, -0.25]}, "prompt_logprobs": _SCORES}
_MESSAGE = {"role": "assistant", "content": "hi", "reasoning": "why"}
_CONFIG = {
    "model_config": {"dtype": "torch.float32", "logprobs_mode": "processed_logprobs", "generation_config": "vllm"},
    "parallel_config": {"worker_extension_cls": "heedful.integrations.vllm.worker.Worker"},
    "weight_transfer_config": {"backend": "heedful"},
}
_LISTED = {"data": [{"id": "policy", "max_model_len": 1024}]}

ANSWERS: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "sampled ids": ({"choices": [_DRAWN], "usage": _USAGE}, lambda tree: Vllm().drawn(tree, 3)),
    "scores": ({"prompt_logprobs": _SCORES}, lambda tree: Vllm().scored(tree, (1, 2, 3))),
    "completions": ({"choices": [_COMPLETED], "usage": _USAGE}, lambda tree: OpenAITokens().drawn(tree, 3)),
    "completion scores": ({"choices": [_COMPLETED]}, lambda tree: OpenAITokens().scored(tree, (1, 2, 3))),
    "chat": ({"choices": [{"message": _MESSAGE}], "usage": _USAGE}, lambda tree: OpenAIText().written(tree)),
    "models": (_LISTED, models),
    "windows": (_LISTED, windows_in),
    "settings": ({"vllm_config": _CONFIG, "vllm_env": {"A": 1}}, settings_in),
}
