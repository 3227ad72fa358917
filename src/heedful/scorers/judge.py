"""Another model as the judge: the policy's thoughts under the policy's prompts, read as text.

The judge scores the text that a person would read, tokenised by the judge's own tokenizer. The policy's ids and
temperature have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heedful.scorers.hf import HFScorer
from heedful.scorers.pairs import Ids
from heedful.types import CrossScores


class Judge:
    """A causal language model that gives the probability of each thought under each prompt.

    Its metrics are entropies and information under the judge's distribution, not the policy's. They are a cross-check
    by a reader with other habits, not a bound. Raises ValueError for models that `HFScorer` refuses.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str, max_tokens: int = 4096
    ) -> None:
        self.name = name
        """Name of the judge in the metrics' names."""
        self._scorer = HFScorer(model, name=name, max_tokens=max_tokens)
        self._tokenizer = tokenizer

    def score(
        self, prompts_N: Sequence[str], thoughts_M: Sequence[str], own_M: Sequence[int]
    ) -> tuple[CrossScores, list[bool]]:
        """Scores at temperature 1 of the thoughts that have a text, and the indices of these thoughts.

        Prompts that are equal to the judge share a column. A prompt starts as the judge's tokenizer starts any text
        (with its own beginning-of-text token, if it has one). A thought is tokenised by itself.
        """
        columns: dict[Ids, int] = {}
        column_N = [columns.setdefault(self._ids(text, start=True), len(columns)) for text in prompts_N]
        ids_M = [self._ids(text, start=False) for text in thoughts_M]
        readable_M = [bool(ids) for ids in ids_M]
        if not any(readable_M):
            return CrossScores([], [], []), readable_M
        own = [column_N[own] for own, readable in zip(own_M, readable_M, strict=True) if readable]
        # A prompt with only unreadable thoughts would be a column without a row.
        used = sorted(set(own))
        prompts = list(columns)
        scores = self._scorer.cross_score(
            [prompts[column] for column in used], [ids for ids in ids_M if ids], [used.index(one) for one in own], 1.0
        )
        return scores, readable_M

    def _ids(self, text: str, start: bool) -> Ids:
        tokenizer: Any = self._tokenizer
        return tuple(map(int, tokenizer(text, add_special_tokens=start).input_ids))


def judge_name(path: str) -> str:
    """The last part of a path or a Hugging Face name, without the characters reserved in metric names.

    >>> judge_name("Qwen/Qwen2.5-0.5B/")
    'Qwen2.5-0.5B'
    """
    return path.rstrip("/").rsplit("/", 1)[-1].replace("@", "-")
