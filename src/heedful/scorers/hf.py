"""Cross-scoring with a Hugging Face causal language model: M thoughts under N prompts, every prompt read once.

The scores equal those of scoring each (prompt, thought) pair alone, up to the rounding stated in `CrossScores.noise`. A
model is refused if a shared prompt cache would not be exact for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

import numpy as np
import torch
from transformers import PreTrainedModel

from heedful.models.attention import longest_context, refuse_unless_plain_causal
from heedful.protocols import WindowExceeded
from heedful.scorers import cached, packed
from heedful.scorers.output_head import OutputHead
from heedful.scorers.packs import worth_sharing
from heedful.scorers.score_sums import ScoreSums
from heedful.types import CrossScores

Ids = tuple[int, ...]
Method = Literal["auto", "packed", "trie", "cached"]

_NOT_FINITE = (
    "HFScorer expected log-probabilities, found NaN: the model's weights are not finite or its logits overflow. Check "
    "the last update, or score in a wider dtype."
)


class HFScorer:
    """A scorer of thoughts under prompts, with the current weights of a causal language model.

    A prompt is read once, and its KV cache serves all thoughts. Each distinct token sequence is scored once. The last
    token of a thought is scored but never read. This is exact: under causal full attention a token attends to the same
    tokens as in its pair alone. Reading takes N x prompt + M x N x thought tokens. Scoring pair by pair takes
    M x N x (prompt + thought).

    Methods:
    - `packed`: thoughts as one flat row without padding. Each token attends to the prompt and to its own thought.
    - `trie`: like `packed`, and shared beginnings of thoughts are read once.
    - `cached`: padded batches with copies of the prompt's keys, for any model.
    - `auto`: `trie` if it leaves less than 3/4 of the tokens, else `packed`. `cached` if a small probe shows that the
      model cannot be read in packs (`method`).

    `model`: full causal attention in every layer. ValueError for sliding, chunked, linear, sparse or bidirectional
    attention, shared or recurrent states, encoder-decoders. A model that transforms its logits after the output layer
    (caps, scales) is scored through its whole forward pass, which holds the logits of all tokens of a pass.
    `name`: empty for the policy that sampled.
    `max_tokens`: maximum tokens of one forward pass, padding included. A longer sequence is a pass of its own. On a CPU
    it is limited to 512 to 1,024, which is faster. It affects speed and memory, and scores only by rounding.
    `head_tokens`: for each k the sums over the first min(k, T_i) tokens are returned too.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        name: str = "",
        max_tokens: int = 4096,
        head_tokens: Sequence[int] = (16, 32),
        method: Method = "auto",
    ) -> None:
        if min((max_tokens, *head_tokens)) < 1:
            raise ValueError(
                "HFScorer expects max_tokens and every k of head_tokens to be at least 1, found "
                f"max_tokens={max_tokens}, head_tokens={tuple(head_tokens)}."
            )
        refuse_unless_plain_causal(model)
        self._model = model
        self._name = name
        self._max_tokens = max_tokens
        self._head_tokens = tuple(head_tokens)
        self._asked = method
        self._obstacle: str | None = None
        self._heads: dict[tuple[float, torch.device], OutputHead] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def obstacle(self) -> str:
        """Why the model cannot be read in packs, as half a sentence. Empty if it can.

        Reads a few tokens, once. ValueError if that gives NaN.
        """
        if self._obstacle is None:
            with _evaluating(self._model), torch.no_grad():
                self._obstacle = packed.obstacle_to_packing(self._model, OutputHead(self._model, 1.0).body)
        if self._obstacle is None:
            raise ValueError(_NOT_FINITE)
        return self._obstacle

    @property
    def method(self) -> Method:
        """How this model is read: `cached`, `packed`, or `trie` on request (`auto` decides about `trie` in each call).

        ValueError if packs were requested and the model cannot be read in packs.
        """
        if self._asked == "cached":
            return "cached"
        if self._asked == "auto":
            return "cached" if self.obstacle else "packed"
        if self.obstacle:
            raise ValueError(
                f"HFScorer expected a model that can be read in packs for method={self._asked!r}, found that "
                f"{self.obstacle} ({type(self._model).__name__}): pass method='auto' or 'cached'."
            )
        return self._asked

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
        keep: Literal["sums", "tokens"] = "sums",
    ) -> CrossScores:
        """log p(z_i | x_j) under log softmax(logits / temperature), summed over tokens, for every i and j, in nats.

        Prompts must be distinct and not empty (ValueError): equal prompts are one column with a larger share of the
        rows. Thoughts may repeat, and an empty thought scores 0. The model's weights, the train or eval state of its
        modules and the global random state do not change. `keep="tokens"`: `CrossScores.tokens` also holds each
        token's log-probability, 4 N sum(T_i) bytes. `CrossScores.method` says how the pairs were read.
        """
        prompts: list[Ids] = [tuple(map(int, ids)) for ids in prompts_N]
        thoughts: list[Ids] = [tuple(map(int, ids)) for ids in thoughts_M]
        _refuse_malformed(prompts, thoughts, own_M, temperature)
        _refuse_unreadable(self._model, prompts, thoughts)
        row_of = {ids: row for row, ids in enumerate(dict.fromkeys(thoughts))}
        rows_M = [row_of[ids] for ids in thoughts]
        lengths = list(map(len, row_of))
        sums = ScoreSums(lengths, len(prompts), self._head_tokens, keep_tokens=keep == "tokens")
        method = self._read(prompts, list(row_of), temperature, sums)
        if np.isnan(sums.sums_SMN).any():
            raise ValueError(_NOT_FINITE)
        whole, *heads = [cast(Sequence[Sequence[float]], sums_MN[rows_M]) for sums_MN in sums.sums_SMN]
        return CrossScores(
            scores_MN=whole,
            lengths_M=list(map(len, thoughts)),
            own_M=list(own_M),
            heads=dict(zip(self._head_tokens, heads, strict=True)),
            noise=_rounding_error(self._model, sums.sums_SMN[0], lengths),
            tokens=None if sums.tokens_MNT is None else cast(Any, [sums.tokens_MNT[row] for row in rows_M]),
            method=method,
        )

    def _head_at(self, temperature: float) -> OutputHead:
        """The output head, probed once, because a model's way from states to logits does not depend on its weights."""
        key = (temperature, self._model.device)
        if key not in self._heads:
            self._heads[key] = OutputHead(self._model, temperature)
        return self._heads[key]

    def _read(self, prompts: list[Ids], thoughts: list[Ids], temperature: float, sums: ScoreSums) -> Method:
        """Score distinct thoughts under distinct prompts into `sums`. Returns the method used."""
        method = self.method
        if method == "packed" and self._asked == "auto" and worth_sharing(thoughts):
            method = "trie"
        on_cpu = self._model.device.type == "cpu"
        # no_grad, not inference_mode: tensors that a model caches here (rotary tables) must remain usable in training.
        with _evaluating(self._model), torch.no_grad():
            head = self._head_at(temperature)
            if method == "cached":
                budget = min(self._max_tokens, cached.CPU_TOKENS) if on_cpu else self._max_tokens
                cached.score_cached(head, prompts, thoughts, budget, sums)
            else:
                budget = min(self._max_tokens, packed.cpu_tokens(self._model)) if on_cpu else self._max_tokens
                share = method == "trie"
                packed.score_packed(self._model, head, prompts, thoughts, budget, sums, share=share)
        return method


def _rounding_error(model: PreTrainedModel, sums_MN: np.ndarray, lengths_M: list[int]) -> float:
    """Rounding error of one sum in nats, as stated in `CrossScores.noise`. About the largest measured error.

    Float32 (and wider): 9 eps (largest sum + 10 nats), that is 1e-6 relative and at least 1e-5. Compared with float64
    the largest error was 5.5 eps of the largest sum. This was measured over random models of 0.85M to 0.5B parameters,
    15 and 100 tokens, and weights of standard deviation .02 to .2.
    Half precision and TF32: the maximum of eps |sum| / sqrt(T). Errors of single tokens are coarse and independent
    there, so they grow with the root of the length. On the smaller models the largest error was .6 of this at standard
    deviations up to .05 and 1.9 at .1. It is a typical error, not a bound, because a bound would make everything a tie.
    """
    finite_MN = np.where(np.isfinite(sums_MN), np.abs(sums_MN), 0.0)
    eps = max(torch.finfo(p.dtype).eps for p in model.parameters() if p.is_floating_point() and p.itemsize > 1)
    if model.device.type == "cuda":
        eps = max(eps, {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-7}[torch.get_float32_matmul_precision()])
    if eps > torch.finfo(torch.float32).eps:
        roots_M1 = np.sqrt(np.maximum(lengths_M, 1))[:, None]
        return float(eps * (finite_MN / roots_M1).max(initial=0.0))
    return float(9 * eps * (finite_MN.max(initial=0.0) + 10))


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Turn dropout off, and restore the train or eval state of every module afterwards (it may differ by module)."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def _refuse_malformed(prompts: list[Ids], thoughts: list[Ids], own_M: Sequence[int], temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"HFScorer expects a temperature above 0, found {temperature}: pass the one sampled with.")
    if not prompts or not all(prompts):
        raise ValueError(
            f"HFScorer expects prompts of at least one token, found {len(prompts)} prompts with lengths "
            f"{sorted(set(map(len, prompts)))}: leave out what was not prompted."
        )
    column_of: dict[Ids, int] = {}
    for column, ids in enumerate(prompts):
        if column_of.setdefault(ids, column) != column:
            raise ValueError(
                f"HFScorer expects distinct prompts, found the same {len(ids)} token ids as prompts {column_of[ids]} "
                f"and {column}: pass one of them and let own_M point both prompts' thoughts at it."
            )
    if len(own_M) != len(thoughts) or not all(0 <= own < len(prompts) for own in own_M):
        raise ValueError(
            f"HFScorer expects own_M to name a column from 0 to {len(prompts) - 1} for each of {len(thoughts)} "
            f"thoughts, found {len(own_M)} entries {sorted(set(own_M))}."
        )


def _refuse_unreadable(model: PreTrainedModel, prompts: list[Ids], thoughts: list[Ids]) -> None:
    """Raise ValueError for ids without an embedding and for positions beyond the model's limit."""
    vocabulary = cast(torch.Tensor, model.get_input_embeddings().weight).shape[0]
    ids = set().union(*prompts, *thoughts)
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise ValueError(
            f"HFScorer expects token ids from 0 to {vocabulary - 1}, found {min(ids)} to {max(ids)}: prompts and "
            "thoughts must come from the tokenizer of the scoring model."
        )
    limit = longest_context(model)
    longest = max(map(len, prompts)) + max(map(len, thoughts), default=0) - 1
    if limit is not None and longest > limit:
        raise WindowExceeded(
            f"HFScorer expects prompt and thought to fit the model's {limit} positions, found {longest} tokens: score "
            "shorter prompts, or raise max_position_embeddings where the model allows it."
        )
