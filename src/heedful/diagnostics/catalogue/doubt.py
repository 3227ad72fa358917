"""The situation in which a reading's interval is too narrow: declared beside the metric, decided from the reading."""

from __future__ import annotations

import re
from dataclasses import dataclass

from heedful.types import Metric

_RULE = re.compile(r"(clusters|rarer|value) (<|>) (\d+(?:\.\d+)?)")
_WORDS = {
    ("clusters", "<"): "fewer than {} effective clusters",
    ("rarer", "<"): "fewer than {} successes or failures",
    ("value", ">"): "a value above {}",
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """A limit on one figure of a reading."""

    figure: str
    """`clusters`: `Metric.clusters`. `rarer`: the same, and where it is not given, successes or failures, whichever are
    fewer. `value`: the value."""
    sign: str
    limit: float

    @classmethod
    def read(cls, text: str) -> Doubt:
        """The rule of a text such as `clusters < 3`. Raises ValueError for another form."""
        match = _RULE.fullmatch(text)
        if match is None or (match[1], match[2]) not in _WORDS:
            raise ValueError(f"Expected a rule such as 'clusters < 3', 'rarer < 2' or 'value > 0.5', found {text!r}.")
        return cls(match[1], match[2], float(match[3]))

    def holds(self, metric: Metric) -> bool:
        """Whether the reading is in the situation. A reading that does not say it counts as one that is."""
        if metric.low is None or metric.high is None or not isinstance(metric.value, int | float):
            return False
        seen = self._seen(metric, float(metric.value))
        return seen is None or (seen < self.limit if self.sign == "<" else seen > self.limit)

    def _seen(self, metric: Metric, value: float) -> float | None:
        if self.figure == "value":
            return value
        if metric.clusters is not None or self.figure == "clusters":
            return metric.clusters
        # Wilson's interval of single trials: as many trials differ from the rest as there are of the rarer kind.
        return round(min(value, 1 - value) * metric.n, 6) if metric.n and 0 <= value <= 1 else None

    def __str__(self) -> str:
        return _WORDS[self.figure, self.sign].format(f"{self.limit:g}")


OVER_SEEDS = Doubt("clusters", "<", 3.0)
"""Of a mean over seeds. Three seeds or fewer are always in it: they show nothing of a run in five that collapses."""
