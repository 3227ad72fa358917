"""Numbers as text: three significant digits, intervals, ticks.

Promise: nothing is rounded to a zero that it is not.
"""

from __future__ import annotations

import math

from heedful.diagnostics.catalogue import Doubt, doubt_of, mark_of
from heedful.types import Metric


def numeral(value: float) -> str:
    """About three significant digits: `1,234`, `12.3`, `0.417`, `3.1e-05`; a true minus sign."""
    size = abs(value)
    if value == 0:
        text = "0"
    elif size < 0.001 or size >= 1e7:
        text = f"{value:.1e}"
    elif float(value).is_integer():
        text = f"{value:,.0f}"
    else:
        digits = max(0, 2 - math.floor(math.log10(size))) if size < 1000 else 0
        text = f"{value:,.{min(digits, 4)}f}"
    return text.replace("-", "−", 1) if value < 0 else text


def interval(metric: Metric, doubt: Doubt | None = None) -> str:
    """`0.42 to 0.55`, or nothing where the metric has no interval. A mark where it covers less than it says: by the
    metric's own rule, or by `doubt`."""
    if metric.low is None or metric.high is None:
        return ""
    return f"{numeral(metric.low)} to {numeral(metric.high)}{mark_of(metric, doubt)}"


def covers(metric: Metric) -> str:
    """How often such an interval held the truth in simulations, for a reading that has the mark; else empty."""
    known = doubt_of(metric)
    return f"Such intervals held the truth in {known}." if known else ""


def in_full(metric: Metric) -> str:
    """One metric in full: value, interval and n, or why it is missing."""
    if metric.value is None:
        return f"missing: {metric.why or 'no reason given'}"
    if isinstance(metric.value, str):
        return metric.value
    within = f" [{interval(metric)}]" if interval(metric) else ""
    count = f", n {metric.n}" if metric.n is not None else ""
    return f"{numeral(metric.value)}{within}{count}"


def ticks(low: float, high: float, about: int, whole: bool = False) -> list[float]:
    """Round numbers from `low` to `high` at steps of 1, 2, 2.5 or 5 times a power of ten. Whole ones if asked."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    stride = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * 0.999)
    if whole:
        stride = max(1.0, float(math.ceil(stride)))
    first = math.ceil(low / stride - 1e-9)
    last = math.floor(high / stride + 1e-9)
    return [round(index * stride, 12) for index in range(first, last + 1)]
