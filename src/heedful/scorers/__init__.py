"""Scorers: log-probabilities of thoughts under prompts that are not their own.

Importing this package loads no torch. Its names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.scorers.hf import HFScorer
    from heedful.scorers.judge import Judge, judge_name

__all__ = ["HFScorer", "Judge", "judge_name"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heedful.scorers import hf, judge

    return getattr(hf if name == "HFScorer" else judge, name)
