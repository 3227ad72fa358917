"""Bars with intervals over categories, as inline SVG in the page's own colours.

Bars begin at zero. Panels that are compared share one scale. An interval that leaves the frame says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from heedful.report.drawing.chart import BOTTOM, LEFT, RIGHT, grid, height, opened, tick
from heedful.report.drawing.numerals import in_full
from heedful.types import Metric

_GAP = 0.3
"""Part of a category's width that is left free."""


@dataclass(frozen=True, slots=True)
class Bars:
    """One series: a value for each category."""

    label: str
    hue: int
    """1 to 6: a colour of the page's palette."""
    metrics: tuple[Metric, ...]


def common_range(panels: Sequence[Sequence[Bars]]) -> tuple[float, float]:
    """Zero, all values, and their intervals as far as they do not dwarf the values."""
    metrics = [metric for panel in panels for bars in panel for metric in bars.metrics]
    values = [number for metric in metrics if (number := metric.number) is not None]
    low, high = min([0.0, *values]), max([0.0, *values])
    room = (high - low) or 1.0
    ends = [end for metric in metrics for end in (metric.low, metric.high) if end is not None]
    low = max(min([low, *ends]), low - room)
    high = min(max([high, *ends]), high + room)
    if high == low:
        return 0.0, 1.0
    margin = 0.05 * (high - low)
    return (low - margin if low < 0 else 0.0), high + margin


def draw_bars(
    panel: Sequence[Bars], categories: Sequence[str], notes: Sequence[str], span: tuple[float, float], title: str
) -> Markup:
    """Bars side by side over `categories`, with a second line of small `notes` under their names."""
    y = height(*span)
    parts = [opened(title), *grid(*span, y)]
    width = (RIGHT - LEFT) / len(categories)
    for number, (category, note) in enumerate(zip(categories, notes, strict=True)):
        left = LEFT + number * width
        parts.append(tick(left + width / 2, BOTTOM + 15, "middle", category))
        parts.append(tick(left + width / 2, BOTTOM + 29, "middle", note))
        thin = (1 - _GAP) * width / len(panel)
        for place, bars in enumerate(panel):
            start = left + _GAP * width / 2 + place * thin
            parts.append(_bar(bars, bars.metrics[number], category, (start, thin), (y(0.0), y, span)))
    parts.append(Markup('<path class="axis" d="M{} {:.1f}H{}"/></svg>').format(LEFT, y(0.0), RIGHT))
    return Markup("").join(parts)


def _bar(bars: Bars, metric: Metric, category: str, across: tuple[float, float], scale: tuple) -> Markup:
    (start, width), (ground, y, (low, high)) = across, scale
    middle = start + width / 2
    number = metric.number
    if number is None:
        return Markup(
            '<path class="lost c{}" d="M{:.1f} {:.1f}l6 6m0 -6l-6 6"><title>{}, {}: {}</title></path>'
        ).format(bars.hue, middle - 3, ground - 8, bars.label, category, in_full(metric))
    top = y(number)
    left, right = start + 0.5, start + width - 0.5
    outline = f"M{left:.1f} {ground:.1f}H{right:.1f}V{top:.1f}H{left:.1f}Z"
    words = f"{bars.label}, {category}: {in_full(metric)}"
    parts = [Markup('<path class="area c{}" d="{}"><title>{}</title></path>').format(bars.hue, outline, words)]
    if metric.low is not None and metric.high is not None:
        path = f"M{middle:.1f} {y(metric.low):.1f}V{y(metric.high):.1f}"
        # An arrow where the interval goes on beyond the frame.
        if metric.high > high:
            path += f"m-3 4l3 -4l3 4M{middle:.1f} {y(metric.low):.1f}"
        if metric.low < low:
            path += f"M{middle - 3:.1f} {y(low) - 4:.1f}l3 4l3 -4"
        parts.append(Markup('<path class="bar c{}" d="{}"/>').format(bars.hue, path))
    return Markup("").join(parts)
