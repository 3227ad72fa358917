"""What recordings of earlier versions lack and the alarms read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from heedful.diagnostics.alarms.conditions import sibling
from heedful.diagnostics.alarms.rules import GAP, GAP_PER_TOKEN, THOUGHT_TOKENS
from heedful.types import Metric

LENGTH = "length/reasoning_tokens"
_PER_TOKEN = re.compile(sibling(GAP, GAP_PER_TOKEN).replace("/", "(?:@[^/]+)?/", 1))
_WHY = "estimated: the recording is of a version that did not write it"


def with_information_per_thought(metrics: Mapping[str, Metric]) -> list[Metric]:
    """The metrics of a step, the gap of a thought and the length of thoughts among them.

    Versions that did not write `information/first_turn/gap` wrote `gap_per_token` and `length/reasoning_tokens`. Their
    product estimates it: exact where length and gap per token are independent, and where all thoughts are of first
    turns (on 31 stored matrices of Chain at most 4.5% off). The relative errors of the two are added as if they were
    independent. Nothing is estimated where the gap was recorded, and for the environments of a mixed batch, whose
    lengths were not.
    """
    found, length = list(metrics.values()), metrics.get(LENGTH)
    for per_token in filter(lambda metric: _PER_TOKEN.fullmatch(metric.name), metrics.values()):
        gap = sibling(per_token.name, GAP.rsplit("/", 1)[-1])
        if gap not in metrics and length is not None:
            found += [_product(gap, per_token, length), replace(length, name=sibling(gap, THOUGHT_TOKENS))]
    return found


def _product(name: str, one: Metric, other: Metric) -> Metric:
    if not isinstance(one.value, int | float) or not isinstance(other.value, int | float):
        return Metric(name, None, one.n, why=one.why or other.why)
    value = float(one.value) * float(other.value)
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return Metric(name, value, one.n, why=_WHY)

    def half(low: float, high: float) -> float:
        return math.hypot(low * float(other.value or 0), high * float(one.value or 0))

    below = half(one.value - one.low, other.value - other.low)
    above = half(one.high - one.value, other.high - other.value)
    return Metric(name, value, one.n, value - below, value + above, why=_WHY)
