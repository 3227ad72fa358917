"""Scorers: log-probabilities of thoughts under prompts that are not their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.exports import lazily

if TYPE_CHECKING:
    from heedful.scorers.hf import HFScorer
    from heedful.scorers.judge import Judge, judge_name
    from heedful.scorers.server import ServerScorer

__all__ = ["HFScorer", "Judge", "ServerScorer", "judge_name"]

__getattr__ = lazily(
    __name__,
    {
        "HFScorer": "heedful.scorers.hf",
        "Judge": "heedful.scorers.judge",
        "ServerScorer": "heedful.scorers.server",
        "judge_name": "heedful.scorers.judge",
    },
)
