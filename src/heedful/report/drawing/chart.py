"""Line charts and stacked shares as inline SVG, styled by the page's own colours.

A missing value breaks its line and leaves a cross on the axis. Every drawn value can be read as text by pointing at it.

Written by hand instead of with a plotting library: a page weighs kilobytes rather than megabytes, follows the light or
dark mode of the reader, and prints.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from markupsafe import Markup

from heedful.report.drawing.numerals import in_full, ticks
from heedful.report.record import Point, Series

WIDTH, HEIGHT = 400, 232
LEFT, RIGHT, TOP, BOTTOM = 48, 390, 20, 196
MOST_POINTS = 400
"""Most points of one line; more are thinned evenly."""
SPARSE = 25
"""Lines with no more points than this show each as a dot."""
BARS = 10
"""Lines with no more points than this show intervals as bars, others as a band."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart."""

    label: str
    series: Series
    hue: int
    """1 to 6: a colour of the page's palette; 0 = the grey of references."""
    reference: bool = False
    """Dashed, without dots, drawn across the whole width: a baseline, a ceiling, chance."""


class Axis(Enum):
    """Which values the vertical axis spans."""

    FITTED = "fitted"
    """The values, and zero where it is near."""
    FROM_ZERO = "from_zero"
    """The values and zero: for what is read against a ceiling."""
    SHARE = "share"
    """0 to 1."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at a step: an alarm."""

    step: int
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """What the charts of one page share, so that equal places mean equal steps."""

    steps: tuple[int, int]
    marks: tuple[Mark, ...] = ()
    foot: str = "training step"
    """What the horizontal axis counts."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn chart and what its pointer shows."""

    svg: Markup
    hover: str
    """JSON: the steps, their places, and per curve the text at each."""


Scale = Callable[[float], float]


def opened(title: str) -> Markup:
    """The beginning of a chart's SVG."""
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, title)


def height(low: float, high: float) -> Scale:
    """The place of a value on a vertical axis. A value beyond its ends is drawn at the end."""
    return lambda value: BOTTOM - (BOTTOM - TOP) * (min(max(value, low), high) - low) / ((high - low) or 1.0)


def grid(low: float, high: float, y: Scale) -> list[Markup]:
    """Horizontal lines with their numbers."""
    parts = []
    for value in ticks(low, high, 5):
        parts.append(Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(LEFT, y(value), RIGHT))
        parts.append(tick(LEFT - 6, y(value) + 4, "end", _beside_axis(value).replace("-", "−")))
    return parts


def _beside_axis(value: float) -> str:
    """A number that fits to the left of the axis: from 100,000 on in thousands."""
    if 1e5 <= abs(value) < 1e7:
        return f"{value / 1e3:,g}k"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e5 else f"{value:g}"


def tick(x: float, y: float, anchor: str, text: str) -> Markup:
    """A small text beside an axis."""
    return Markup('<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def draw_lines(curves: Sequence[Curve], frame: Frame, axis: Axis, title: str) -> Chart:
    """Draw curves over steps."""
    curves = [_thin(curve) for curve in curves]
    low, high = (0.0, 1.0) if axis is Axis.SHARE else _range(curves, axis)
    x, y = _scales(frame, low, high)
    parts = [_axes(x, y, frame, low, high)]
    # Bars at the same step are moved apart a little, or they would hide each other.
    with_bars = [number for number, curve in enumerate(curves) if _shows_bars(curve)]
    # Backwards, so that the first curve, which matters most, is on top.
    for number, curve in reversed(list(enumerate(curves))):
        place = with_bars.index(number) - (len(with_bars) - 1) / 2 if number in with_bars else 0.0
        parts.append(_curve(curve, x, y, shift=5.0 * place))
    return Chart(_svg(parts, title, frame), _hover(curves, x))


def draw_shares(curves: Sequence[Curve], frame: Frame, title: str) -> Chart:
    """Stack curves whose sum is 1 at most. Steps where one of them is missing are left blank."""
    curves = [_thin(curve) for curve in curves]
    x, y = _scales(frame, 0.0, 1.0)
    by_step = [{point.step: point.number for point in curve.series.numeric} for curve in curves]
    complete = sorted(set.intersection(*(set(values) for values in by_step))) if by_step else []
    floor = dict.fromkeys(complete, 0.0)
    parts = [_axes(x, y, frame, 0.0, 1.0)]
    for curve, values in zip(curves, by_step, strict=True):
        top = {step: floor[step] + (values[step] or 0.0) for step in complete}
        outline = [(x(step), y(top[step])) for step in complete]
        outline += [(x(step), y(floor[step])) for step in reversed(complete)]
        parts.append(Markup('<path class="area c{}" d="{}Z"/>').format(curve.hue, path(outline)))
        floor = top
    return Chart(_svg(parts, title, frame), _hover(curves, x))


def draw_sparkline(series: Series) -> Markup:
    """A line of a few letters' size, without axes; nothing for fewer than two numbers."""
    points = series.thinned(80).numeric
    if len(points) < 2:
        return Markup("")
    numbers = [point.number or 0.0 for point in points]
    low, high = min(numbers), max(numbers)
    span, width = (high - low) or 1.0, max(points[-1].step - points[0].step, 1)
    places = [
        (2 + 96 * (point.step - points[0].step) / width, 20 - 16 * ((number - low) / span if high > low else 0.5))
        for point, number in zip(points, numbers, strict=True)
    ]
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true"><path d="{}"/></svg>'
    ).format(path(places))


def _thin(curve: Curve) -> Curve:
    return Curve(curve.label, curve.series.thinned(MOST_POINTS), curve.hue, curve.reference)


def _shows_bars(curve: Curve) -> bool:
    return len(curve.series.measured) <= BARS and any(point.metric.low is not None for point in curve.series.measured)


def _range(curves: Sequence[Curve], axis: Axis) -> tuple[float, float]:
    """The axis: all values, and intervals as far as they do not dwarf the values."""
    points = [point for curve in curves for point in curve.series.numeric]
    numbers = [point.number for point in points if point.number is not None]
    if not numbers:
        return 0.0, 1.0
    low, high = min(numbers), max(numbers)
    room = (high - low) or abs(high) or 1.0
    low = max(min([low, *(p.metric.low for p in points if p.metric.low is not None)]), low - room)
    high = min(max([high, *(p.metric.high for p in points if p.metric.high is not None)]), high + room)
    if low > 0 and (axis is Axis.FROM_ZERO or low < 0.6 * high):
        low = 0.0
    if low == high:
        low, high = (low - 0.5 * room, high + 0.5 * room) if low else (0.0, 1.0)
    margin = 0.06 * (high - low)
    return (low if low == 0 else low - margin), high + margin


def _scales(frame: Frame, low: float, high: float) -> tuple[Scale, Scale]:
    first, last = frame.steps
    if first == last:
        first, last = first - 1, last + 1
    return lambda step: LEFT + 6 + (RIGHT - LEFT - 12) * (step - first) / (last - first), height(low, high)


def _axes(x: Scale, y: Scale, frame: Frame, low: float, high: float) -> Markup:
    parts = grid(low, high, y)
    for step in ticks(frame.steps[0], max(frame.steps[1], frame.steps[0] + 1), 7, whole=True):
        if step <= frame.steps[1]:
            parts.append(tick(x(step), BOTTOM + 16, "middle", f"{step:,.0f}"))
    parts.append(Markup('<path class="axis" d="M{} {}H{}"/>').format(LEFT, BOTTOM, RIGHT))
    for mark in frame.marks:
        parts.append(
            Markup('<path class="mark" d="M{:.1f} {}V{}"><title>{}</title></path>').format(
                x(mark.step), TOP - 6, BOTTOM, mark.text
            )
        )
    return Markup("").join(parts)


def _curve(curve: Curve, x: Scale, y: Scale, shift: float) -> Markup:
    runs = [
        list(points)
        for measured, points in itertools.groupby(curve.series.points, key=lambda point: point.number is not None)
        if measured
    ]
    if curve.reference:
        return _reference(curve, x, y)
    parts = []
    for points in runs:
        places = [(x(point.step) + shift, y(point.number or 0.0)) for point in points]
        parts.append(_intervals(curve, points, x, y, shift))
        parts.append(Markup('<path class="line c{}" d="{}"/>').format(curve.hue, path(places)))
        if len(curve.series.measured) <= SPARSE or len(points) == 1:
            parts += [_dot(curve.hue, *place) for place in places]
    for point in curve.series.missing:
        parts.append(
            Markup('<path class="lost c{}" d="M{:.1f} {}l6 6m0 -6l-6 6"><title>step {}: {}</title></path>').format(
                curve.hue, x(point.step) - 3, BOTTOM - 3, point.step, in_full(point.metric)
            )
        )
    return Markup("").join(parts)


def _reference(curve: Curve, x: Scale, y: Scale) -> Markup:
    points = curve.series.numeric
    if not points:
        return Markup("")
    heights = [y(point.number or 0.0) for point in points]
    places = [(LEFT, heights[0]), *((x(p.step), height) for p, height in zip(points, heights, strict=True))]
    kind = "grey" if curve.hue == 0 else f"c{curve.hue}"
    return Markup('<path class="reference {}" d="{}"/>').format(kind, path([*places, (RIGHT, heights[-1])]))


def _intervals(curve: Curve, points: Sequence[Point], x: Scale, y: Scale, shift: float) -> Markup:
    """Bars for few values, a band for many; a value without an interval interrupts the band."""
    bounded = [point.metric.low is not None and point.metric.high is not None for point in points]
    if _shows_bars(curve):
        return Markup("").join(
            Markup('<path class="bar c{}" d="M{:.1f} {:.1f}V{:.1f}"/>').format(
                curve.hue, x(point.step) + shift, y(point.metric.low or 0.0), y(point.metric.high or 0.0)
            )
            for point, has in zip(points, bounded, strict=True)
            if has
        )
    bands = []
    for has, run in itertools.groupby(zip(bounded, points, strict=True), key=lambda pair: pair[0]):
        inside = [point for _, point in run]
        if has and len(inside) > 1:
            outline = [(x(point.step), y(point.metric.high or 0.0)) for point in inside]
            outline += [(x(point.step), y(point.metric.low or 0.0)) for point in reversed(inside)]
            bands.append(Markup('<path class="band c{}" d="{}Z"/>').format(curve.hue, path(outline)))
    return Markup("").join(bands)


_SHAPES = {
    1: "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0",
    2: "m-3 -3h6v6h-6z",
    3: "m0 -3.8l3.6 6.4h-7.2z",
    4: "m0 -4l4 4l-4 4l-4 -4z",
    5: "m0 3.8l3.6 -6.4h-7.2z",
    6: "m-1.3 -3.8h2.6v2.5h2.5v2.6h-2.5v2.5h-2.6v-2.5h-2.5v-2.6h2.5z",
}
"""One shape per hue, so that colour is never the only difference between lines."""


def shape(hue: int, x: float, y: float) -> str:
    """The path of the dot that belongs to a hue."""
    return f"M{x:.1f} {y:.1f}{_SHAPES[hue]}"


def _dot(hue: int, x: float, y: float) -> Markup:
    return Markup('<path class="dot c{}" d="{}"/>').format(hue, shape(hue, x, y))


def path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places) if places else ""


def _svg(parts: Sequence[Markup], title: str, frame: Frame) -> Markup:
    foot = tick(RIGHT, HEIGHT - 4, "end", frame.foot)
    return Markup("").join([opened(title), *parts, foot, Markup("</svg>")])


def _hover(curves: Sequence[Curve], x: Scale) -> str:
    steps = sorted({point.step for curve in curves for point in curve.series.points})
    rows = [
        {
            "label": curve.label,
            "hue": curve.hue,
            "at": {str(point.step): in_full(point.metric) for point in curve.series.points},
        }
        for curve in curves
    ]
    return json.dumps({"steps": steps, "places": [round(x(step), 1) for step in steps], "curves": rows})


def key(curve: Curve, stacked: bool = False) -> Markup:
    """The small sample of a curve for a legend: as it is drawn."""
    kind = "grey" if curve.hue == 0 else f"c{curve.hue}"
    if stacked:
        sample = Markup('<path class="area {}" d="M5 0H21V12H5Z"/>').format(kind)
    else:
        sample = Markup('<path class="{} {}" d="M1 6H25"/>').format("reference" if curve.reference else "line", kind)
        if not curve.reference and len(curve.series.measured) <= SPARSE:
            sample += _dot(curve.hue, 13, 6)
    return Markup('<svg class="key" viewBox="0 0 26 12" aria-hidden="true">{}</svg>').format(sample)
