"""When a cheap measurement calls for a full one ahead of time.

Promise: a pure function of the measurements so far, so a resumed run becomes suspicious where the
uninterrupted one did.
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
class Suspicion:
    """The baseline interval of the cheap `gap_per_token` of one scope, and when it was last left; checkpointed."""

    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    raised: int | None = None
    """The step of the last full measurement that suspicion called for, or would have called for."""

    def to_json(self) -> dict[str, Any]:
        return {"lows": list(self.lows), "highs": list(self.highs), "raised": self.raised}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Suspicion:
        return cls(tuple(map(float, tree["lows"])), tuple(map(float, tree["highs"])), tree["raised"])

    def outside(self, gap: Metric) -> bool:
        """Whether the interval of `gap` and the baseline's, the mean of the first three, do not overlap.

        Up or down: what moved is worth a full look. False before there is a baseline and without an interval.
        """
        if len(self.lows) < BASELINE or gap.low is None or gap.high is None:
            return False
        return gap.high < fmean(self.lows) or gap.low > fmean(self.highs)


def suspect(suspicion: Suspicion, gap: Metric, step: int, pause: int) -> tuple[Suspicion, bool]:
    """What is known after the cheap `gap_per_token` of this step, and whether to measure in full now.

    At most once in `pause` steps: a run that has left its baseline for good must not pay for it at every measurement.
    """
    if len(suspicion.lows) < BASELINE and gap.low is not None and gap.high is not None:
        return replace(suspicion, lows=(*suspicion.lows, gap.low), highs=(*suspicion.highs, gap.high)), False
    rested = suspicion.raised is None or step - suspicion.raised >= pause
    if rested and suspicion.outside(gap):
        return replace(suspicion, raised=step), True
    return suspicion, False


def cheap_rows(own_M: Sequence[int], prompts: int, thoughts: int) -> list[bool]:
    """Which rows of a full measurement a cheap one would have had: the first of the first prompts."""
    seen: dict[int, int] = {}
    chosen = []
    for own in own_M:
        chosen.append(own < prompts and seen.get(own, 0) < thoughts)
        seen[own] = seen.get(own, 0) + 1
    return chosen
