"""When a cheap measurement calls for a full one ahead of time.

Promise: a pure function of the measurements so far, so a resumed run measures in full where the uninterrupted one did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from heedful.types import Metric

BASELINE = 3
"""First measurements whose mean interval is the baseline."""


@dataclass(frozen=True, slots=True)
class EarlyCheck:
    """The baseline interval of the cheap `gap_per_token` of one scope, and when it was last left. Checkpointed."""

    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    raised: int | None = None
    """The step of the last full measurement that the check called for, or would have called for."""

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> EarlyCheck:
        return cls(tuple(tree["lows"]), tuple(tree["highs"]), tree["raised"])

    def outside(self, gap: Metric) -> bool:
        """Whether the interval of `gap` and the baseline's, the mean of the first three, do not overlap.

        Both directions count. False before there is a baseline and without an interval.
        """
        if len(self.lows) < BASELINE or gap.low is None or gap.high is None:
            return False
        return gap.high < fmean(self.lows) or gap.low > fmean(self.highs)


def check_gap(before: EarlyCheck, gap: Metric, step: int, pause: int) -> tuple[EarlyCheck, bool]:
    """The check after the cheap `gap_per_token` of this step, and whether to measure in full now.

    It calls at most once in `pause` steps: a run that has left its baseline for good must not pay at every measurement.
    """
    if len(before.lows) < BASELINE and gap.low is not None and gap.high is not None:
        return replace(before, lows=(*before.lows, gap.low), highs=(*before.highs, gap.high)), False
    rested = before.raised is None or step - before.raised >= pause
    if rested and before.outside(gap):
        return replace(before, raised=step), True
    return before, False


def cheap_rows(own_M: Sequence[int], prompts: int, thoughts: int) -> list[bool]:
    """Which rows of a full measurement a cheap one would have had: the first of the first prompts."""
    seen: dict[int, int] = {}
    chosen = []
    for own in own_M:
        chosen.append(own < prompts and seen.get(own, 0) < thoughts)
        seen[own] = seen.get(own, 0) + 1
    return chosen
