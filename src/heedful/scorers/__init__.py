"""Scorers: log-probabilities of thoughts under prompts that are not their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.scorers.hf import HFScorer
    from heedful.scorers.judge import Judge, judge_name
    from heedful.scorers.pairs import Ids, Pairs, ScoreSums, read_pairs, tokens_of_pairs
    from heedful.scorers.server import ServerScorer

__all__ = [
    "HFScorer",
    "Ids",
    "Judge",
    "Pairs",
    "ScoreSums",
    "ServerScorer",
    "judge_name",
    "read_pairs",
    "tokens_of_pairs",
]

__getattr__ = lazily(
    __name__,
    {
        "Ids": "heedful.scorers.pairs",
        "Pairs": "heedful.scorers.pairs",
        "read_pairs": "heedful.scorers.pairs",
        "tokens_of_pairs": "heedful.scorers.pairs",
        "ScoreSums": "heedful.scorers.pairs",
        "HFScorer": "heedful.scorers.hf",
        "Judge": "heedful.scorers.judge",
        "ServerScorer": "heedful.scorers.server",
        "judge_name": "heedful.scorers.judge",
    },
)
