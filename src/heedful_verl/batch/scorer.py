"""Cross-scoring through verl's own workers: one row per pair of prompt and thought.

The weights stay where verl has them, sharded or not, with adapters in effect. Nothing is shared between rows, so M
thoughts under N prompts cost M x N forward passes of prompt and thought. `HFScorer` reads every prompt once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.workers.utils.padding import response_from_nested

from heedful.models import EPS, rounding_of
from heedful.protocols import WindowExceeded
from heedful.scorers import Ids, ScoreSums, read_pairs, tokens_of_pairs
from heedful.types import CrossScores
from heedful_verl.batch.limits import WorkerLimits

ROWS_PER_CALL = 1024
"""Rows that are sent to the workers at a time. It bounds the memory of the driver."""


class WorkerScorer:
    """A scorer of thoughts under prompts, with the weights that verl's actor has now.

    `log_probs`: verl's `compute_log_prob` of the actor's worker group.
    """

    def __init__(self, log_probs: Callable[[TensorDict], TensorDict], limits: WorkerLimits) -> None:
        self._log_probs, self._limits = log_probs, limits

    @property
    def name(self) -> str:
        """Empty: it is the policy that sampled."""
        return ""

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
        keep: Literal["sums", "tokens"] = "sums",
    ) -> CrossScores:
        """log p(z_i | x_j) under log softmax(logits / temperature), summed over tokens, for every i and j, in nats.

        Prompts must be distinct and not empty. Thoughts may repeat, and an empty thought scores 0. Raises
        WindowExceeded for pairs that are longer than a row may be.
        """
        asked = read_pairs(prompts_N, thoughts_M)
        window = self._limits.window
        if window is not None and asked.longest > window:
            raise WindowExceeded(
                f"WorkerScorer expects prompt and thought to fit the {window} tokens of a row, found {asked.longest}: "
                "raise actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu where the model allows it, or sample "
                "shorter thoughts."
            )
        sums = ScoreSums(asked.lengths, len(asked.prompts), keep_tokens=keep == "tokens")
        pairs = [(row, column) for row, ids in enumerate(asked.distinct) if ids for column in range(len(asked.prompts))]
        for start in range(0, len(pairs), ROWS_PER_CALL):
            chunk = pairs[start : start + ROWS_PER_CALL]
            texts = [(asked.prompts[column], asked.distinct[row]) for row, column in chunk]
            for (row, column), logprobs_T in zip(chunk, self._score(texts, temperature), strict=True):
                sums.add([row], [column], logprobs_T[None, None, :])
        if np.isnan(sums.sums_SMN).any():
            raise ValueError(
                "WorkerScorer expected log-probabilities, found NaN: the actor's weights are not finite. Check the "
                "last update."
            )
        noise = rounding_of(EPS.get(self._limits.dtype, EPS["bfloat16"]), sums.sums_SMN[0], asked.lengths)
        return sums.scores(asked, own_M, noise, "verl workers")

    def reading(self, prompts_N: Sequence[Sequence[int]], thoughts_M: Sequence[Sequence[int]]) -> int:
        """The tokens of all pairs. Rows that only fill a batch are not counted."""
        return tokens_of_pairs(prompts_N, thoughts_M)

    def _score(self, texts: Sequence[tuple[Ids, Ids]], temperature: float) -> list[np.ndarray]:
        """The log-probability of each token of a thought after its prompt."""
        filled = [*texts, *[texts[0]] * (-len(texts) % self._limits.multiple)]
        rows = batch_of(filled)
        mask = rows["response_mask"]
        tensordict_utils.assign_non_tensor(rows, temperature=temperature, calculate_entropy=False, compute_loss=False)
        output = self._log_probs(rows)
        scored = response_from_nested(output["log_probs"], mask).unbind()
        return [np.asarray(logprobs_T.double()) for logprobs_T in scored[: len(texts)]]


def batch_of(texts: Sequence[tuple[Ids, Ids]]) -> TensorDict:
    """Rows of prompt and thought with the columns that verl's engines read."""
    prompts = [torch.tensor(prompt) for prompt, _ in texts]
    thoughts = [torch.tensor(thought) for _, thought in texts]
    columns = {
        "prompts": prompts,
        "responses": thoughts,
        "input_ids": [torch.cat(pair) for pair in zip(prompts, thoughts, strict=True)],
        "position_ids": [torch.arange(len(prompt) + len(thought)) for prompt, thought in texts],
        "response_mask": [torch.ones_like(thought) for thought in thoughts],
        "loss_mask": [torch.ones_like(thought) for thought in thoughts],
    }
    nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
    return TensorDict(nested, batch_size=len(texts))
