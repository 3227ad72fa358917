"""One metric, or one kind of metrics, as the catalogue describes it: its name, what it means, and when it misleads."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from heedful.types import Metric

Cadence = Literal["step", "measurement", "full measurement", "gradients", "evaluation", "once"]
"""When a metric is written: at every step, at every measurement of the thoughts (cheap or full), at full measurements
only, when gradients are measured, at every evaluation, or once in a run."""

Trend = Literal["higher", "lower"]

PARTS = {
    "bucket": r"all|bucket_\d+",
    "component": ".+",
    "environment": ".+",
    "k": r"\d+",
    "kind": "[^/]+",
    "p": "task|kl|entropy",
    "part": "task|task_undivided|task_divided|kl|entropy",
    "q": "kl|entropy",
    "read": "gap|mi|thought_entropy|success|right_by_thought|greedy_success",
    "reason": ".+",
    "regulariser": "kl|entropy",
    "scope": "(?:first_turn|any_turn|observation|image|image_newest|image_all|text)(?:_closed)?",
    "scorer": "[^/]+",
    "split": "[^/]+",
    "stage": "[^/]+",
    "term": ".+_varied|.+_constant|kl|entropy|clip|importance|critic|carried|decay",
}
"""A named part of a pattern -> the regular expression that it stands for."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """The situation of a reading in which its 95% interval is too narrow. One of the limits is given."""

    covers: str
    """The lowest share of truths that simulations put into such an interval, below 90%, and the case. The source is the
    table of `docs/results/coverage.md`, and a test compares the two."""
    clusters: float = 0.0
    """Fewer effective clusters than this (`Metric.clusters`)."""
    rarer: float = 0.0
    """The same, and where clusters are not given, fewer successes or failures, whichever are fewer."""
    above: float = math.inf
    """A larger value than this."""

    def holds(self, metric: Metric) -> bool:
        """Whether the reading is in the situation. A reading that does not say it counts as one that is."""
        value, seen = metric.number, metric.clusters
        if metric.low is None or metric.high is None or value is None:
            return False
        if self.above < math.inf:
            return value > self.above
        if seen is None and self.rarer and metric.n and 0 <= value <= 1:
            # Wilson's interval of single trials: as many trials differ from the rest as there are of the rarer kind.
            seen = round(min(value, 1 - value) * metric.n, 6)
        return seen is None or seen < (self.rarer or self.clusters)

    def limit(self) -> str:
        """The rule in short, as the metrics page has it."""
        if self.above < math.inf:
            return f">{self.above:g}"
        return f"<{self.rarer:g} successes or failures" if self.rarer else f"<{self.clusters:g}"

    def __str__(self) -> str:
        if self.above < math.inf:
            return f"a value above {self.above:g}"
        if self.rarer:
            return f"fewer than {self.rarer:g} successes or failures"
        return f"fewer than {self.clusters:g} effective clusters"


OVER_SEEDS = Doubt("", clusters=3)
"""Of a mean over seeds. Three seeds or fewer are always in it: they show nothing of a run in five that collapses."""


def alike(percent: int) -> Doubt:
    """The doubt about means over tasks of which few differ."""
    return Doubt(f"{percent}% where nearly all tasks are alike and few differ", clusters=3)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one metric without any run."""

    pattern: str
    """The name. `<part>` stands for any text that `PARTS` allows, and `[...]` may be left out."""
    unit: str
    """`share` is a number from 0 to 1 that is drawn on an axis of shares; empty = no unit."""
    text: str
    """One sentence for a reader of a report."""
    detail: str = ""
    """The formula, and the rest that a reader of the metrics page should know."""
    row: str = ""
    """The text of the page in place of `text` and `detail`. Neighbours with the same one share a row."""
    missing: str = ""
    """When the value is `None`."""
    collapse: Trend | None = None
    """Where a collapse of the reasoning should move the metric. Declared before the studies read any value, and not
    extended since. `None`: no direction was declared."""
    cadence: Cadence = "step"
    doubt: Doubt | None = None
    """The situation of a reading in which its interval has a mark. `None`: 95% intervals hold 90% of truths or more."""

    def stands_for(self, name: str) -> bool:
        """Whether `name` is a metric of this entry."""
        return _compiled(self.pattern).fullmatch(name) is not None


def under(
    prefix: str, *entries: Entry, unit: str = "", missing: str = "", cadence: Cadence = "step"
) -> tuple[Entry, ...]:
    """The entries with this before their names, and with these values where they have no own."""
    return tuple(
        replace(
            entry,
            pattern=prefix + entry.pattern,
            unit=entry.unit or unit,
            missing=entry.missing or missing,
            cadence=cadence if entry.cadence == "step" else entry.cadence,
        )
        for entry in entries
    )


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    found = ""
    for token in re.findall(r"<\w+>|\[|\]|[^<\[\]]+", pattern):
        if token in "[]":
            found += "(?:" if token == "[" else ")?"
        else:
            found += f"(?:{PARTS[token[1:-1]]})" if token.startswith("<") else re.escape(token)
    return re.compile(found)
