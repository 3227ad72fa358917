"""Bars with intervals over categories, as inline SVG in the page's own colours.

Bars begin at zero. Panels that are compared share one scale. An interval that leaves the frame says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from heedful.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from heedful.report.numerals import in_full, ticks
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
    values = [float(metric.value) for metric in metrics if isinstance(metric.value, int | float)]
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
    low, high = span

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (min(max(value, low), high) - low) / (high - low)

    parts = [Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, title)]
    for value in ticks(low, high, 5):
        parts.append(Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(LEFT, y(value), RIGHT))
        text = f"{value:g}".replace("-", "−")
        parts.append(_text(LEFT - 6, y(value) + 4, "end", text))
    width = (RIGHT - LEFT) / len(categories)
    for number, (category, note) in enumerate(zip(categories, notes, strict=True)):
        left = LEFT + number * width
        parts.append(_text(left + width / 2, BOTTOM + 15, "middle", category))
        parts.append(_text(left + width / 2, BOTTOM + 29, "middle", note))
        thin = (1 - _GAP) * width / len(panel)
        for place, bars in enumerate(panel):
            start = left + _GAP * width / 2 + place * thin
            parts.append(_bar(bars, bars.metrics[number], category, (start, thin), (y(0.0), y, span)))
    parts.append(Markup('<path class="axis" d="M{} {:.1f}H{}"/></svg>').format(LEFT, y(0.0), RIGHT))
    return Markup("").join(parts)


def _bar(bars: Bars, metric: Metric, category: str, across: tuple[float, float], scale: tuple) -> Markup:
    (start, width), (ground, y, (low, high)) = across, scale
    middle = start + width / 2
    if not isinstance(metric.value, int | float):
        return Markup(
            '<path class="lost c{}" d="M{:.1f} {:.1f}l6 6m0 -6l-6 6"><title>{}, {}: {}</title></path>'
        ).format(bars.hue, middle - 3, ground - 8, bars.label, category, in_full(metric))
    top = y(float(metric.value))
    parts = [
        Markup(
            '<path class="area c{}" d="M{:.1f} {:.1f}H{:.1f}V{:.1f}H{:.1f}Z"><title>{}, {}: {}</title></path>'
        ).format(
            bars.hue,
            start + 0.5,
            ground,
            start + width - 0.5,
            top,
            start + 0.5,
            bars.label,
            category,
            in_full(metric),
        )
    ]
    if metric.low is not None and metric.high is not None:
        path = f"M{middle:.1f} {y(metric.low):.1f}V{y(metric.high):.1f}"
        # An arrow where the interval goes on beyond the frame.
        if metric.high > high:
            path += f"m-3 4l3 -4l3 4M{middle:.1f} {y(metric.low):.1f}"
        if metric.low < low:
            path += f"M{middle - 3:.1f} {y(low) - 4:.1f}l3 4l3 -4"
        parts.append(Markup('<path class="bar c{}" d="{}"/>').format(bars.hue, path))
    return Markup("").join(parts)


def _text(across: float, up: float, anchor: str, text: str) -> Markup:
    return Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        across, up, anchor, text
    )
