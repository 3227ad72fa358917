"""Cross-scoring with a model that a server holds: one request per pair of prompt and thought, at temperature 1.

A server reports log-probabilities of prompts under log softmax(logits), whatever temperature is asked for. So another
temperature is refused. A request reads its whole prompt: N x M pairs cost N M (prompt + thought) tokens, where
`HFScorer` reads every prompt once. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np

from heedful.models.forward.rounding import EPS, rounding_of
from heedful.policies.servers import Client, OpenAITokens, TokenDialect
from heedful.policies.servers.examination import ServerFacts
from heedful.protocols import WindowExceeded
from heedful.scorers.pairs import ScoreSums, read_pairs
from heedful.types import CrossScores

_RAW = ("raw_logits", "processed_logits")
"""Modes of vLLM in which the reported numbers are logits."""


class ServerScorer:
    """A scorer of thoughts under prompts, with the weights that a server holds now.

    The scores equal `HFScorer`'s for the same weights at temperature 1, up to the rounding stated in
    `CrossScores.noise`. The rounding is that of the server's dtype, or of bfloat16 if the server does not name it.

    `model`: the name that the server gives the model. `facts`: what the server says about itself (`examine`). `name`:
    empty for the policy that sampled.

    Raises ValueError for a server that reports logits in place of log-probabilities.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        facts: ServerFacts,
        *,
        name: str = "",
        dialect: TokenDialect | None = None,
    ) -> None:
        mode = facts.setting("logprobs_mode")
        if mode in _RAW:
            raise ValueError(
                f"ServerScorer expects log-probabilities, but the server at {facts.url} reports {mode}: start it with "
                "--logprobs-mode processed_logprobs."
            )
        self._client, self._model, self._name = client, model, name
        self._window = facts.windows.get(model)
        self._eps = EPS.get(str(facts.setting("dtype")), EPS["bfloat16"])
        self._dialect = dialect or OpenAITokens()

    @property
    def name(self) -> str:
        return self._name

    def cross_score(
        self,
        prompts_N: Sequence[Sequence[int]],
        thoughts_M: Sequence[Sequence[int]],
        own_M: Sequence[int],
        temperature: float,
        keep: Literal["sums", "tokens"] = "sums",
    ) -> CrossScores:
        """log p(z_i | x_j) under log softmax(logits), summed over tokens, for every i and j, in nats.

        Prompts must be distinct and not empty. Thoughts may repeat, and an empty thought scores 0. Raises ValueError
        for a temperature other than 1, WindowExceeded for pairs that do not fit the model's window, and
        ServerUnreachable or ServerRefused if the server gives no scores.
        """
        if temperature != 1:
            raise ValueError(
                f"ServerScorer expects temperature 1, found {temperature!s:.80}: a server reports log-probabilities of "
                "prompts at temperature 1, whatever is asked for. Score with a model in this process (HFScorer, "
                "--model)."
            )
        asked = read_pairs(prompts_N, thoughts_M)
        # The server samples one token after what it scores.
        if self._window is not None and asked.longest >= self._window:
            raise WindowExceeded(
                f"ServerScorer expects prompt and thought to fit the server's window of {self._window} tokens with one "
                f"to spare, found {asked.longest}: score shorter prompts, or start the server with a larger "
                "--max-model-len."
            )
        prompts, distinct = asked.prompts, asked.distinct
        sums = ScoreSums(asked.lengths, len(prompts), keep_tokens=keep == "tokens")
        pairs = [(row, column) for row, ids in enumerate(distinct) if ids for column in range(len(prompts))]

        def score(pair: tuple[int, int]) -> tuple[float, ...]:
            """The log-probability of each token of a thought after a prompt."""
            thought = distinct[pair[0]]
            ids = prompts[pair[1]] + thought
            call = self._dialect.score(ids, self._model)
            return self._client.ask(call, lambda tree: self._dialect.scored(tree, ids))[-len(thought) :]

        with ThreadPoolExecutor(min(self._client.limits.connections, max(1, len(pairs)))) as pool:
            for (row, column), logprobs in zip(pairs, pool.map(score, pairs), strict=True):
                sums.add([row], [column], np.asarray(logprobs, dtype=np.float64)[None, None, :])
        return sums.scores(asked, own_M, rounding_of(self._eps, sums.sums_SMN[0], asked.lengths), "server")
