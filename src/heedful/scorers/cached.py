"""Methods "cached", "by_token" and "plain". The first two read a prompt once and its thoughts behind its states.

A thought token reads the same tokens as if its pair were scored alone. The states of a prompt are never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import nn
from transformers.cache_utils import Cache

from heedful.models.forward.exactness import plain_states
from heedful.models.forward.states import empty_cache, fork, read, shared
from heedful.scorers.kept import KeptPrompts, ReadPrompts
from heedful.scorers.output_head import OutputHead
from heedful.scorers.packs import Targets
from heedful.scorers.pairs import ScoreSums, tokens_of_pairs

Ids = tuple[int, ...]

CPU_TOKENS = 512
"""Larger passes exceed a CPU's caches: 29 us a token at 448 tokens, 35 at 3,584 (0.85M parameters, one thread)."""
_PREFIX_COPIES = 16
"""Maximum prompt positions that a layer copies for one pass, as a multiple of the tokens of that pass."""
_PASS = 128
"""Fixed cost of a small pass in tokens, on a CPU."""


def score_cached(
    head: OutputHead,
    prompts: Sequence[Ids],
    thoughts: Sequence[Ids],
    budget: int,
    sums: ScoreSums,
    kept: KeptPrompts,
    *,
    by_token: bool = False,
) -> None:
    """Score every thought after every prompt into `sums`. `budget`: maximum tokens of one pass, padding included.

    Prompts in `kept` are not read again. `by_token`: a pass reads one token of each thought. Some recurrent models
    continue a state only so.
    """
    device = cast(torch.Tensor, next(head.body.parameters())).device
    plan, together = _plan(prompts, thoughts, budget, by_token)
    batches = [_Batch.of(rows, thoughts, device) for rows in plan]
    first = FirstTokens(thoughts)
    read_batch = _read_by_token if by_token else _read_at_once

    def fresh(unread: list[Ids]) -> ReadPrompts:
        return ReadPrompts(*read_prompts(head.body, unread, device))

    for columns in equally_long(prompts, budget):
        cache, last_PH, _ = kept.read([prompts[column] for column in columns], fresh)
        first_PM, behind = first.logprobs(head, last_PH), len(prompts[columns[0]])
        for start in range(0, len(columns), together):
            part = range(start, min(start + together, len(columns)))
            for batch in batches:
                rest_PBT = np.zeros((len(part), *batch.real_BT.shape))
                if batch.real_BT.any():
                    rest_PBT = read_batch(head, cache, part, batch, behind)
                logprobs_PBT = np.concatenate([first_PM[part][:, batch.rows, None], rest_PBT], axis=2)
                sums.add(batch.rows, columns[part.start : part.stop], logprobs_PBT)


def score_plain(head: OutputHead, prompts: Sequence[Ids], thoughts: Sequence[Ids], sums: ScoreSums) -> None:
    """Method "plain": one forward pass per pair, without a KV cache or padding. Slow, for any causal language model."""
    device = cast(torch.Tensor, next(head.body.parameters())).device
    for column, prompt in enumerate(prompts):
        for row, thought in enumerate(thoughts):
            if thought:
                ids_1T = torch.tensor([prompt + thought[:-1]], device=device)
                states_TH = plain_states(head.body, ids_1T)[0, len(prompt) - 1 :]
                sums.add([row], [column], _logprobs(head, states_TH, np.array(thought))[None, None])


def reads_in_batches(prompts: Sequence[Ids], thoughts: Sequence[Ids], budget: int, *, by_token: bool = False) -> int:
    """Number of tokens read after each prompt in the batches of `score_cached`, padding included."""
    if by_token:
        return sum(len(ids) - 1 for ids in thoughts if ids)
    plan, _ = _plan(prompts, thoughts, budget, by_token)
    return sum(len(rows) * _columns(max(len(thoughts[row]) for row in rows)) for rows in plan)


def worth_reading_by_token(prompts: Sequence[Ids], thoughts: Sequence[Ids], budget: int) -> bool:
    """Whether the passes of method "by_token" cost less than one pass for each pair."""
    plan, together = _plan(prompts, thoughts, budget, by_token=True)
    widths = [max(len(thoughts[row]) for row in rows) for rows in plan]
    passes = sum(-(-len(columns) // together) * sum(widths) for columns in equally_long(prompts, budget))
    read = sum(map(len, prompts)) + len(prompts) * reads_in_batches(prompts, thoughts, budget, by_token=True)
    pairs = len(prompts) * sum(map(bool, thoughts))
    return passes * _PASS + read < pairs * _PASS + tokens_of_pairs(prompts, thoughts)


def _plan(prompts: Sequence[Ids], thoughts: Sequence[Ids], budget: int, by_token: bool) -> tuple[list[list[int]], int]:
    """The thoughts of each pass, and the number of prompts that are read together."""
    lengths, longest = list(map(len, thoughts)), max(map(len, prompts))
    if not by_token:
        together = max(1, budget // max(1, sum(lengths)))
        return plan_rows(lengths, budget // together, longest), together
    rows = [row for row, length in enumerate(lengths) if length]
    most = max(1, min(budget, _PREFIX_COPIES * budget // longest))
    return [rows[start : start + most] for start in range(0, len(rows), most)], max(1, most // max(1, len(rows)))


def _columns(longest: int) -> int:
    """Columns of a pass. At least two: Nemotron-H and Zamba 2 compute a lone token in another way."""
    return max(2, longest - 1) if longest > 1 else 0


def equally_long(prompts: Sequence[Ids], budget: int) -> Iterator[list[int]]:
    """Columns of prompts that are read in one pass. They have equal length, so no position is padding."""
    by_length: dict[int, list[int]] = {}
    for column, ids in enumerate(prompts):
        by_length.setdefault(len(ids), []).append(column)
    for length, columns in by_length.items():
        size = max(1, budget // length)
        yield from (columns[start : start + size] for start in range(0, len(columns), size))


def read_prompts(body: nn.Module, prompts: list[Ids], device: torch.device) -> tuple[Cache, torch.Tensor]:
    """The cache of equally long prompts, and the state after each. `Unsupported` if the body keeps none."""
    states_PTH, cache = read(body, torch.tensor(prompts, device=device), empty_cache(body))
    return cache, states_PTH[:, -1]


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
        width = 1 + _columns(int(lengths_B1.max()))
        ids_BT = np.array([thoughts[row] + (0,) * (width - len(thoughts[row])) for row in rows])
        real_BT = np.arange(1, width) < lengths_B1
        return cls(rows, torch.from_numpy(ids_BT[:, :-1]).to(device), ids_BT[:, 1:], real_BT)


def _read_at_once(head: OutputHead, cache: Cache, prompts: range, batch: _Batch, behind: int) -> np.ndarray:
    """Log-probabilities P x B x T (float64) of all tokens of a batch but the first ones. 0 at padding.

    `prompts`: those of `cache`. `behind`: the tokens of each.
    """
    ids_RT = batch.inputs_BT.repeat(len(prompts), 1)
    states_RTH, _ = read(head.body, ids_RT, shared(cache, prompts, len(batch.rows)), behind)
    real_RT = np.tile(batch.real_BT, (len(prompts), 1))
    read_EH = states_RTH[torch.from_numpy(real_RT).to(states_RTH.device)]
    rest_RT = np.zeros(real_RT.shape)
    rest_RT[real_RT] = _logprobs(head, read_EH, np.tile(batch.targets_BT, (len(prompts), 1))[real_RT])
    return rest_RT.reshape(len(prompts), *batch.real_BT.shape)


def _read_by_token(head: OutputHead, cache: Cache, prompts: range, batch: _Batch, behind: int) -> np.ndarray:
    """The same, one column of tokens after the other. Rows that have ended are not read."""
    real_TR = np.tile(batch.real_BT, (len(prompts), 1)).T
    ids_RT = batch.inputs_BT.repeat(len(prompts), 1)
    cache = fork(cache, torch.tensor(prompts).repeat_interleave(len(batch.rows)))
    read_EH, open_R = [], np.arange(len(ids_RT))
    for place, real_R in enumerate(real_TR):
        left_R = np.flatnonzero(real_R)
        if not len(left_R):
            break
        if len(left_R) < len(open_R):
            cache, open_R = fork(cache, torch.from_numpy(np.searchsorted(open_R, left_R))), left_R
        states_R1H, cache = read(head.body, ids_RT[left_R, place : place + 1], cache, behind + place)
        read_EH.append(states_R1H[:, 0])
    rest_TR = np.zeros(real_TR.shape)
    rest_TR[real_TR] = _logprobs(head, torch.cat(read_EH), np.tile(batch.targets_BT, (len(prompts), 1)).T[real_TR])
    return rest_TR.T.reshape(len(prompts), *batch.real_BT.shape)


def _logprobs(head: OutputHead, states_EH: torch.Tensor, tokens_E: np.ndarray) -> np.ndarray:
    return head.logprobs(states_EH, Targets(np.arange(len(tokens_E)), tokens_E)).double().cpu().numpy()


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
