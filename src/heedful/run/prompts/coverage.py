"""The guard against starved tasks: a task that the filter has dropped for long is re-admitted from time to time.

Only groups that vary are re-admitted, so every training group has a non-zero gradient. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from heedful.boundary import refuse_below
from heedful.types import Verdict


@dataclass(frozen=True, slots=True)
class Coverage:
    """The rule for starved tasks of a pool, and the number of them that a step may re-admit."""

    rate: float = 0.0
    """Share of a step's groups that may be re-admitted although the filter dropped them, rounded up. 0 = none."""
    patience: int = 4
    """Visits in a row without being trained on after which a task is starved."""

    def __post_init__(self) -> None:
        refuse_below(self, patience=1)
        if not 0 <= self.rate <= 1:
            raise ValueError(f"coverage.rate is a share of a step's groups: expected 0 to 1, found {self.rate}")

    def most(self, groups: int) -> int:
        """The number of groups that may be re-admitted, out of `groups`."""
        return math.ceil(self.rate * groups)


def readmit(
    verdicts: Sequence[Verdict],
    names: Sequence[str],
    skips: Sequence[int],
    varies: Sequence[bool],
    patience: int,
    most: int,
) -> list[Verdict]:
    """The verdicts, with at most `most` dropped groups of starved tasks re-admitted: weight 1, reason `readmitted`.

    `names`: the tasks. `skips`: for each task the number of visits in a row without being trained on, before this step.
    `varies`: whether the group varies. The task with most skips comes first, and equal ones are ordered by name, so the
    order of groups does not matter.

    A group that does not vary is never re-admitted: its advantages are zeros, and it would only dilute the others. A
    guard cannot help with a task that the policy always or never solves. Only another policy can.
    """
    waiting = [
        (-skipped, name, group)
        for group, (name, skipped) in enumerate(zip(names, skips, strict=True))
        if varies[group] and skipped >= patience and not verdicts[group].kept
    ]
    chosen = {group for _, _, group in sorted(waiting)[:most]}
    return [
        replace(verdict, weight=1.0, reason="readmitted") if group in chosen else verdict
        for group, verdict in enumerate(verdicts)
    ]
