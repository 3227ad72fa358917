"""Logits of a Hugging Face causal LM at the positions that predict trained tokens, and nowhere else.

The logits equal the ones of the whole forward pass. Unneeded rows, each of the vocabulary's size, are not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from heedful.models.forward.exactness import Probe, Unsupported, body_and_head, evaluating, plain_states, states_in
from heedful.models.forward.shared_prompts import SharedPrompts
from heedful.models.vision.positions import carry_shift, joined_shifts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_EXACT: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()
"""For each model that was probed: whether its shared prompts are exact."""


Head = Callable[[torch.Tensor], torch.Tensor]
"""The output head: hidden states `[N, D]` to logits `[N, V]`."""
Over = Callable[[torch.Tensor, Head], torch.Tensor]
"""What is computed from the hidden states and the head, for instance in blocks of positions."""


class TokenLogits(Protocol):
    """One row of logits per trained token, in row-major order."""

    def __call__(
        self,
        ids_BT: torch.Tensor,
        trained_BT: torch.Tensor,
        prompts: SharedPrompts | None = None,
        over: Over | None = None,
    ) -> torch.Tensor:
        """Logits `[N, V]`, or what `over` makes of the hidden states and the head, one row per trained token.

        `prompts` are computed once each (`keeps_prompts`).
        """
        ...


def token_logits(model: PreTrainedModel) -> TokenLogits:
    """The function that gives the logits of `model` that predict trained tokens.

    The output head runs only at the wanted positions. Models without a head of their own (`body_and_head`) run their
    whole forward pass.
    """
    body, last = body_and_head(model)
    head: Head = last or (lambda logits_NV: logits_NV)

    def rows(
        ids_BT: torch.Tensor,
        trained_BT: torch.Tensor,
        prompts: SharedPrompts | None = None,
        over: Over | None = None,
    ) -> torch.Tensor:
        states_ND = hidden_before_trained(body, ids_BT, trained_BT, prompts)
        return head(states_ND) if over is None else over(states_ND, head)

    return rows


def keeps_prompts(model: PreTrainedModel) -> bool:
    """Whether a prompt of `model` can be computed once for several rows, within its window.

    A probe compares log-probabilities behind shared prompts with those of plain forward passes, once per model.
    """
    if model not in _EXACT:
        with evaluating(model), torch.no_grad():
            probe = Probe.of(model)
            if not probe.finite:
                return False  # nothing can be compared; the update itself names weights that are not finite
            _EXACT[model] = not probe.obstacle(lambda: _behind_prompts(model, probe))
    return _EXACT[model]


def _behind_prompts(model: PreTrainedModel, probe: Probe) -> list[list[np.ndarray]]:
    """Log-probabilities of the probe's thoughts, read behind prompts that are computed once each."""
    logits_of = token_logits(model)
    columns = []
    for prompt in probe.prompts:
        width = len(prompt) + max(map(len, probe.thoughts))
        rows = [prompt + thought + (0,) * (width - len(prompt + thought)) for thought in probe.thoughts]
        trained = [[len(prompt) <= place < len(prompt + ids) for place in range(width)] for ids in probe.thoughts]
        ids_BT, trained_BT = torch.tensor(rows, device=model.device), torch.tensor(trained, device=model.device)
        shared = SharedPrompts(len(prompt) - 1, (0,) * len(rows), (len(prompt) - 1) // 2)
        logprobs_NV = logits_of(ids_BT, trained_BT, shared).float().log_softmax(-1)
        chosen_N = logprobs_NV.gather(1, ids_BT[trained_BT][:, None])[:, 0].double().cpu().numpy()
        columns.append(np.split(chosen_N, np.cumsum([len(ids) for ids in probe.thoughts])[:-1]))
    return [list(row) for row in zip(*columns, strict=True)]


def hidden_before_trained(
    body: torch.nn.Module, ids_BT: torch.Tensor, trained_BT: torch.Tensor, prompts: SharedPrompts | None = None
) -> torch.Tensor:
    """The last hidden states from which the trained tokens are predicted, `[N, D]`. If `body` is a whole model, logits.

    `prompts` as in `TokenLogits`.
    """
    if prompts is None:
        return plain_states(body, ids_BT)[:, :-1][trained_BT[:, 1:]]
    cache = _read_prompts(body, ids_BT, prompts)
    states_BTD = states_in(body(input_ids=ids_BT[:, prompts.length :], past_key_values=cache, use_cache=True))
    return states_BTD[:, :-1][trained_BT[:, prompts.length + 1 :]]


# No attention mask and no positions are passed. Padding is on the right, and a causal model attends only to the left,
# so padding reaches no trained token. Without a mask the fast causal kernel runs.


def _read_prompts(body: torch.nn.Module, ids_BT: torch.Tensor, prompts: SharedPrompts) -> DynamicCache:
    """The KV cache of each row's prompt. Gradients of all rows of a prompt flow back into its single pass."""
    cache = DynamicCache()
    first = prompts.first_rows
    if 0 < prompts.beginning < prompts.length:
        body(input_ids=ids_BT[:1, : prompts.beginning], past_key_values=cache, use_cache=True)
        _repeat(cache, [0] * len(first))
        own = slice(prompts.beginning, prompts.length)
    else:
        own = slice(0, prompts.length)
    body(input_ids=ids_BT[first, own], past_key_values=cache, use_cache=True)
    if cache.get_seq_length() != prompts.length:
        raise Unsupported("it keeps no KV cache of a prompt")
    _repeat(cache, prompts.of_B)
    return cache


def _repeat(cache: DynamicCache, rows_B: Sequence[int]) -> None:
    """Replace the rows of `cache` by these of its rows."""
    layers = cast(list[DynamicLayer], cache.layers)
    at_B = torch.tensor(rows_B, device=cast(torch.Tensor, layers[0].keys).device)
    for layer in layers:
        layer.keys, layer.values = cast(torch.Tensor, layer.keys)[at_B], cast(torch.Tensor, layer.values)[at_B]
    carry_shift(cache, joined_shifts([cache], [at_B]))
