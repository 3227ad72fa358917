"""Cross-scoring with a Hugging Face causal language model: M thoughts under N prompts, every prompt read once.

The scores equal those of scoring each (prompt, thought) pair alone, up to the rounding stated in `CrossScores.noise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, cast

import numpy as np
import torch
from transformers import PreTrainedModel

from heedful.models.forward.attention import longest_context_of, refuse_unless_causal
from heedful.models.forward.exactness import Probe, evaluating, rounding_error
from heedful.models.forward.spread import spread_as
from heedful.protocols import WindowExceeded
from heedful.scorers import cached, packed
from heedful.scorers.kept import KeptPrompts
from heedful.scorers.output_head import OutputHead
from heedful.scorers.packs import reads_in_packs, worth_sharing
from heedful.scorers.pairs import Ids, ScoreSums, read_pairs, tokens_of_pairs
from heedful.types import CrossScores

Method = Literal["auto", "packed", "trie", "cached", "by_token", "plain"]

_NOT_FINITE = (
    "HFScorer expected log-probabilities, found NaN: the model's weights are not finite or its logits overflow. Check "
    "the last update, or score in a wider dtype."
)


class HFScorer:
    """A scorer of thoughts under prompts, with the current weights of a causal language model.

    A prompt is read once, and its KV cache serves all thoughts, inside `asking()` those of later calls, too. Packs read
    prompts of similar length in one pass. Each distinct token sequence is scored once. The last token of a thought is
    scored but never read. This is exact: a token attends to the same tokens as in its pair alone. Reading takes
    N x prompt + M x N x thought tokens. Scoring pair by pair takes M x N x (prompt + thought).

    Methods:
    - `packed`: thoughts as one flat row without padding. Each token attends to the prompt and to its own thought.
    - `trie`: like `packed`, and shared beginnings of thoughts are read once.
    - `cached`: padded batches behind copies of what the model keeps of the prompt.
    - `by_token`: the same, one token of each thought in a pass. It is slower, and exact for recurrent models that
      continue a state by single tokens only (Jamba, Mamba-1).
    - `plain`: one forward pass per pair, without a KV cache. It is slow, and works for any causal language model.
    - `auto`: the first of `packed`, `cached`, `by_token`, `plain` that is exact. On a CPU `trie` replaces `packed` if
      it leaves less than 3/4 of the tokens. On an accelerator `cached` comes first, since it is 1.4 to 3.2 times as
      fast as `packed` there (`benchmarks/cross_scoring.py`). `plain` replaces `by_token` where its passes cost less.

    Every method is tried on a few short sequences before it is used. It must give the log-probabilities of plain
    forward passes, up to 4 times the stated rounding error. The probe runs once per scorer.

    `model`: any causal language model. ValueError for an encoder-decoder or bidirectional attention.
    `name`: empty for the policy that sampled.
    `max_tokens`: maximum tokens of one forward pass, padding included. A longer sequence is a pass of its own. On a CPU
    that holds the whole model it is limited to 512 to 1,024, which is faster. It affects speed and memory, and scores
    only by rounding.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        name: str = "",
        max_tokens: int = 4096,
        method: Method = "auto",
    ) -> None:
        refuse_unless_causal(model)
        self._model = model
        self._name = name
        self._max_tokens = max_tokens
        self._asked = method
        self._method: Method | None = None
        self._obstacles: dict[Method, str] = {}
        self._probe: Probe | None = None
        self._heads: dict[tuple[float, torch.device], OutputHead] = {}
        self._kept = KeptPrompts()

    @property
    def name(self) -> str:
        return self._name

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A context in which the weights do not change. A prompt is read once in it, whatever the number of calls.

        What is read of the first `max_tokens` tokens of prompts is kept to its end, beside the pass that is made.
        """
        self._kept = KeptPrompts(self._max_tokens)
        try:
            yield
        finally:
            self._kept = KeptPrompts()

    @property
    def method(self) -> Method:
        """How this model is read: the method that was asked for (`auto` decides about `trie` in each call).

        ValueError if this method does not give the log-probabilities of plain forward passes. For `auto`, if none does.
        """
        if self._method is None:
            on_cpu = self._model.device.type == "cpu"
            fastest: list[Method] = ["packed", "cached"] if on_cpu else ["cached", "packed"]
            fastest += ["by_token", "plain"]
            tried = fastest if self._asked == "auto" else [self._asked]
            passed = (method for method in tried if not self._obstacle_to(method))
            self._method = next(passed, None)
        if self._method is None:
            found = f"found that {self._obstacle_to(tried[-1])} ({type(self._model).__name__})"
            if self._asked in ("auto", "plain"):
                raise ValueError(
                    f"HFScorer expected a causal language model, {found}: its scores would not be probabilities of "
                    "thoughts. Score with another model."
                )
            read = "in packs" if self._asked in ("packed", "trie") else "from the KV cache of a prompt"
            raise ValueError(
                f"HFScorer expected a model that can be read {read} for method={self._asked!r}, {found}: pass "
                "method='auto', which falls back to a slower method."
            )
        return self._method

    @property
    def way(self) -> str:
        """The method, with the reasons against faster ones. ValueError as for `method`."""
        return self._named(self.method)

    def _named(self, method: Method) -> str:
        slower = self._asked == "auto"
        reasons = [f"not {faster}: {found}" for faster, found in self._obstacles.items() if slower and found]
        return "; ".join([method, *reasons])

    def _obstacle_to(self, method: Method) -> str:
        """Why the scores of a method cannot be trusted, as half a sentence. Empty if they can. Probed once."""
        method = "packed" if method == "trie" else method
        if method not in self._obstacles:
            with evaluating(self._model), torch.no_grad():
                self._probe = self._probe or Probe.of(self._model)
                if not self._probe.finite:
                    raise ValueError(_NOT_FINITE)
                # Tries first: they use every argument of the packed attention.
                tried: tuple[Method, ...] = ("trie", "packed") if method == "packed" else (method,)
                self._obstacles[method] = next(filter(None, (self._tried(one, self._probe) for one in tried)), "")
        return self._obstacles[method]

    def _tried(self, method: Method, probe: Probe) -> str:
        """Why this method does not score the probe's sequences as plain forward passes do."""
        prompts, thoughts = probe.prompts, probe.thoughts

        def tokens() -> Sequence[Sequence[np.ndarray]]:
            head = self._head_at(1.0)
            if method == "trie":
                packed.refuse_unless_packable(self._model, head.body)
            sums = ScoreSums(list(map(len, thoughts)), len(prompts), keep_tokens=True)
            self._score(method, head, prompts, thoughts, sums, KeptPrompts())
            return cast(Sequence[Sequence[np.ndarray]], sums.tokens_MNT)

        return probe.obstacle(tokens)

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
        keep: Literal["sums", "tokens"] = "sums",
    ) -> CrossScores:
        """log p(z_i | x_j) under log softmax(logits / temperature), summed over tokens, for every i and j, in nats.

        Prompts must be distinct and not empty: equal prompts are one column with a larger share of the rows. Thoughts
        may repeat, and an empty thought scores 0. The model's weights, the train or eval state of its modules and the
        global random state do not change. `keep="tokens"`: `CrossScores.tokens` also holds each
        token's log-probability, 4 N sum(T_i) bytes. `CrossScores.method` says how the pairs were read.
        """
        asked = read_pairs(prompts_N, thoughts_M)
        limit = longest_context_of(self._model.config)
        if limit is not None and asked.longest - 1 > limit:
            raise WindowExceeded(
                f"HFScorer expects prompt and thought to fit the model's {limit} positions, found {asked.longest - 1} "
                "tokens: score shorter prompts, or raise max_position_embeddings where the model allows it."
            )
        sums = ScoreSums(asked.lengths, len(asked.prompts), keep_tokens=keep == "tokens")
        method = self._method_for(asked.prompts, asked.distinct)
        # no_grad, not inference_mode: tensors that a model caches here (rotary tables) must remain usable in training.
        with evaluating(self._model), torch.no_grad():
            self._score(method, self._head_at(temperature), asked.prompts, asked.distinct, sums, self._kept)
        if np.isnan(sums.sums_SMN).any():
            raise ValueError(_NOT_FINITE)
        noise = rounding_error(self._model, sums.sums_SMN[0], asked.lengths)
        return sums.scores(asked, own_M, noise, self._named(method))

    def _head_at(self, temperature: float) -> OutputHead:
        """The output head, probed once, because a model's way from states to logits does not depend on its weights."""
        key = (temperature, self._model.device)
        if key not in self._heads:
            self._heads[key] = OutputHead(self._model, temperature)
        return self._heads[key]

    def _method_for(self, prompts: list[Ids], thoughts: list[Ids]) -> Method:
        """The method for these distinct thoughts."""
        found = self.method
        if self._asked == "auto" and found == "packed" and worth_sharing(thoughts):
            return "trie"
        slow = self._asked == "auto" and found == "by_token"
        if slow and not cached.worth_reading_by_token(prompts, thoughts, self._budget(found)):
            return "plain"
        return found

    def _score(
        self,
        method: Method,
        head: OutputHead,
        prompts: list[Ids],
        thoughts: list[Ids],
        sums: ScoreSums,
        kept: KeptPrompts,
    ) -> None:
        """Score distinct thoughts under distinct prompts into `sums` by one method."""
        # A pass of weights that are spread over ranks gathers all of them: few large passes are faster.
        budget = self._max_tokens if spread_as(self._model) else self._budget(method)
        if method == "plain":
            cached.score_plain(head, prompts, thoughts, sums)
        elif method in ("cached", "by_token"):
            cached.score_cached(head, prompts, thoughts, budget, sums, kept, by_token=method == "by_token")
        else:
            share = method == "trie"
            packed.score_packed(self._model, head, prompts, thoughts, budget, sums, kept, share=share)

    def _budget(self, method: Method) -> int:
        """Maximum tokens of one forward pass of a model that is whole on its device."""
        if self._model.device.type != "cpu" or method == "by_token":
            return self._max_tokens
        return min(self._max_tokens, cached.CPU_TOKENS if method == "cached" else packed.cpu_tokens(self._model))

    def reading(self, prompts_N: Sequence[Sequence[int]], thoughts_M: Sequence[Sequence[int]]) -> int:
        """The tokens that `cross_score` would read, padding included. Each prompt once, each thought under each prompt.

        The last token of a thought is scored but never read. `auto` reads by the method that `cross_score` would use.
        A prompt that was kept counts as one that is read, so that a budget does not depend on earlier calls.
        """
        prompts = [tuple(map(int, ids)) for ids in prompts_N]
        thoughts = list(dict.fromkeys(tuple(map(int, ids)) for ids in thoughts_M))
        method = self._method_for(prompts, thoughts)
        if method == "plain":
            return tokens_of_pairs(prompts, thoughts) - len(prompts) * sum(map(bool, thoughts))
        if method in ("cached", "by_token"):
            by_token = method == "by_token"
            after = cached.reads_in_batches(prompts, thoughts, self._budget(method), by_token=by_token)
            return sum(map(len, prompts)) + len(prompts) * after
        after = reads_in_packs(thoughts, self._budget(method), share=method == "trie")
        passes = packed.similarly_long(prompts, self._budget(method))
        return sum(len(columns) * len(prompts[columns[-1]]) for columns in passes) + len(prompts) * after
