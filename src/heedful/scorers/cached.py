"""Method "cached": thoughts in padded batches with a shared KV cache of the prompt, for any causal language model.

A thought token attends to the same tokens as if its pair were scored alone. The cache of a prompt is never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from heedful.models.forward.exactness import Unsupported, plain_states, states_in
from heedful.models.vision.positions import carry_shift, shift_of
from heedful.scorers.output_head import OutputHead
from heedful.scorers.packs import Targets
from heedful.scorers.pairs import ScoreSums

Ids = tuple[int, ...]

CPU_TOKENS = 512
"""Larger passes exceed a CPU's caches: 29 us a token at 448 tokens, 35 at 3,584 (0.85M parameters, one thread)."""
_PREFIX_COPIES = 16
"""Maximum prompt positions that a layer copies for one pass, as a multiple of the tokens of that pass."""


def score_cached(
    head: OutputHead, prompts: Sequence[Ids], thoughts: Sequence[Ids], budget: int, sums: ScoreSums
) -> None:
    """Score every thought after every prompt into `sums`. `budget`: maximum tokens of one pass, padding included."""
    device = cast(torch.Tensor, next(head.body.parameters())).device
    together = max(1, budget // max(1, sum(map(len, thoughts))))
    plan = plan_rows(list(map(len, thoughts)), budget // together, longest_prompt=max(map(len, prompts)))
    batches = [_Batch.of(rows, thoughts, device) for rows in plan]
    first = FirstTokens(thoughts)
    for columns in equally_long(prompts, budget):
        cache, last_PH = read_prompts(head.body, [prompts[column] for column in columns], device)
        first_PM = first.logprobs(head, last_PH)
        for start in range(0, len(columns), together):
            part = slice(start, start + together)
            prefix = _shared(cache, part)
            for batch in batches:
                logprobs_PBT = _read_batch(head, prefix, batch, first_PM[part])
                sums.add(batch.rows, columns[part], logprobs_PBT)


def score_plain(head: OutputHead, prompts: Sequence[Ids], thoughts: Sequence[Ids], sums: ScoreSums) -> None:
    """Method "plain": one forward pass per pair, without a KV cache or padding. Slow, for any causal language model."""
    device = cast(torch.Tensor, next(head.body.parameters())).device
    for column, prompt in enumerate(prompts):
        for row, thought in enumerate(thoughts):
            if thought:
                ids_1T = torch.tensor([prompt + thought[:-1]], device=device)
                states_TH = plain_states(head.body, ids_1T)[0, len(prompt) - 1 :]
                logprobs_T = head.logprobs(states_TH, Targets(np.arange(len(thought)), np.array(thought)))
                sums.add([row], [column], logprobs_T.double().cpu().numpy()[None, None])


def reads_in_batches(prompts: Sequence[Ids], thoughts: Sequence[Ids], budget: int) -> int:
    """Number of tokens read after each prompt in the batches of `score_cached`, padding included."""
    lengths = list(map(len, thoughts))
    together = max(1, budget // max(1, sum(lengths)))
    plan = plan_rows(lengths, budget // together, longest_prompt=max(map(len, prompts)))
    return sum(len(rows) * (max(lengths[row] for row in rows) - 1) for rows in plan)


def equally_long(prompts: Sequence[Ids], budget: int) -> Iterator[list[int]]:
    """Columns of prompts that are read in one pass. They have equal length, so no position is padding."""
    by_length: dict[int, list[int]] = {}
    for column, ids in enumerate(prompts):
        by_length.setdefault(len(ids), []).append(column)
    for length, columns in by_length.items():
        size = max(1, budget // length)
        yield from (columns[start : start + size] for start in range(0, len(columns), size))


def read_prompts(body: nn.Module, prompts: list[Ids], device: torch.device) -> tuple[Cache, torch.Tensor]:
    """The KV cache of equally long prompts, and the state after each. `Unsupported` if the body keeps no cache."""
    cache = DynamicCache()
    last_PH = states_after(body, torch.tensor(prompts, device=device), cache)[:, -1]
    if cache.get_seq_length() != len(prompts[0]):
        raise Unsupported("it keeps no KV cache of a prompt")
    return cache, last_PH


def states_after(body: nn.Module, ids_RT: torch.Tensor, cache: Cache) -> torch.Tensor:
    """The states R x T of tokens that follow the cached ones. If the body is a whole model, the logits."""
    return states_in(body(input_ids=ids_RT, past_key_values=cache, use_cache=True, return_dict=True))


class FirstTokens:
    """The first tokens of thoughts. Each distinct one is scored once, from the state after the prompt."""

    def __init__(self, thoughts: Sequence[Ids]) -> None:
        self._tokens, self._places = np.unique([ids[0] for ids in thoughts if ids] or [0], return_inverse=True)
        self._real_M = np.array([bool(ids) for ids in thoughts], dtype=bool)

    def logprobs(self, head: OutputHead, last_PH: torch.Tensor) -> np.ndarray:
        """Log-probabilities P x M (float64) of every thought's first token. 0 for an empty thought."""
        distinct = head.logprobs(last_PH, Targets.every(len(last_PH), self._tokens))
        logprobs_PM = np.zeros((len(last_PH), len(self._real_M)))
        if self._real_M.any():
            logprobs_PM[:, self._real_M] = distinct.double().cpu().numpy().reshape(len(last_PH), -1)[:, self._places]
        return logprobs_PM


class _Prefix(DynamicLayer):
    """One layer's KV cache of N prompts, shared by N x B rows and never written.

    A plain cache layer would hold a copy of the prompt per row and layer until the end of the pass. Here a copy is
    freed after the attention that reads it.
    """

    def __init__(self, keys_NHTD: torch.Tensor, values_NHTD: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys_NHTD, values_NHTD, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return _continued(cast(Any, self.keys), key_states), _continued(cast(Any, self.values), value_states)


def _shared(cache: Cache, part: slice) -> Cache:
    """Read-only views of some of the prompts in a cache."""
    views: list[Any] = [_Prefix(layer.keys[part], layer.values[part]) for layer in cast(list[Any], cache.layers)]
    shared, shift_N = Cache(layers=views), shift_of(cache)
    carry_shift(shared, None if shift_N is None else shift_N[part])
    return shared


def _continued(prefix_NHTD: torch.Tensor, states_BHTD: torch.Tensor) -> torch.Tensor:
    """Each row's states after those of its prompt. Rows are ordered prompt by prompt."""
    shape = (len(prefix_NHTD), len(states_BHTD) // len(prefix_NHTD))
    shared = prefix_NHTD[:, None].expand(-1, shape[1], -1, -1, -1)
    return torch.cat([shared, states_BHTD.unflatten(0, shape)], dim=-2).flatten(0, 1)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Thoughts that are read in one pass. Padding is on the right, where no real token attends to it."""

    rows: list[int]
    inputs_BT: torch.Tensor
    """Every token of a thought except the last."""
    targets_BT: np.ndarray
    """Every token of a thought except the first."""
    real_BT: np.ndarray
    """True = the target is a token of the thought."""

    @classmethod
    def of(cls, rows: list[int], thoughts: Sequence[Ids], device: torch.device) -> _Batch:
        lengths_B1 = np.array([[len(thoughts[row])] for row in rows])
        width = int(lengths_B1.max())
        ids_BT = np.array([thoughts[row] + (0,) * (width - len(thoughts[row])) for row in rows])
        real_BT = np.arange(1, width) < lengths_B1
        return cls(rows, torch.from_numpy(ids_BT[:, :-1]).to(device), ids_BT[:, 1:], real_BT)


def _read_batch(head: OutputHead, prefix: Cache, batch: _Batch, first_PM: np.ndarray) -> np.ndarray:
    """Log-probabilities P x B x T (float64) of a batch after each of P prompts. 0 at padding."""
    prompts = len(first_PM)
    real_RT = np.tile(batch.real_BT, (prompts, 1))
    rest_RT = np.zeros(real_RT.shape)
    if real_RT.shape[1]:
        states_RTH = states_after(head.body, batch.inputs_BT.repeat(prompts, 1), prefix)
        read_EH = states_RTH[torch.from_numpy(real_RT).to(states_RTH.device)]
        tokens_E = np.tile(batch.targets_BT, (prompts, 1))[real_RT]
        rest_RT[real_RT] = head.logprobs(read_EH, Targets(np.arange(len(tokens_E)), tokens_E)).double().cpu().numpy()
    return np.concatenate([first_PM[:, batch.rows, None], rest_RT.reshape(prompts, len(batch.rows), -1)], axis=2)


def plan_rows(lengths: list[int], budget: int, longest_prompt: int) -> list[list[int]]:
    """The rows of each pass: non-empty thoughts sorted by length, cut to minimise the cost of padding and passes.

    The fixed cost of a pass is assumed to be an eighth of the budget (measured: 48 tokens of 512 on a CPU).
    """
    rows = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: lengths[row])
    most = max(1, _PREFIX_COPIES * budget // longest_prompt)
    cheapest = [(0.0, 0)]
    for end in range(1, len(rows) + 1):
        width = lengths[rows[end - 1]] - 1
        size = min(most, end, max(1, budget // max(1, width)))
        cost, start = min((cheapest[start][0] + (end - start) * width, start) for start in range(end - size, end))
        cheapest.append((cost + budget / 8, start))
    plan: list[list[int]] = []
    end = len(rows)
    while end:
        start = cheapest[end][1]
        plan.append(rows[start:end])
        end = start
    return plan
