"""Figures of a study: curves over steps with seed bands, and measures over a dial.

Promise: inline SVG in the page's own colours, drawn from numbers alone; a place without a value is a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from markupsafe import Markup

from heedful.diagnostics.catalogue import unit_of
from heedful.report.drawing import chart
from heedful.report.drawing.numerals import numeral, ticks
from heedful.report.drawing.panel import DrawnPanel, Panel, draw
from heedful.report.record import Point, RunRecord, Series
from heedful.studies.declaration import Study
from heedful.studies.outcomes import Outcomes, shared, within_range
from heedful.studies.paired import mean_over

HUES = 6
"""Number of colours and shapes that can be distinguished: most arms in one chart."""

WIDE = 30.0
"""Levels above 0 whose highest is this many times the lowest are drawn on a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class Place:
    """One point of a figure whose horizontal axis is not the step."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One labelled line of such a figure."""

    label: str
    hue: int
    places: tuple[Place, ...]
    dots: bool = True


def curves(study: Study, outcomes: Outcomes) -> list[DrawnPanel]:
    """Charts of each declared curve over the steps, of six arms each, and of the pools: the mean over the seeds."""
    records = {arm.name: {each.run.seed: each.record for each in outcomes.of_arm(arm.name)} for arm in study.arms}
    members = {name: (name,) for name in records}
    pools = {pool.name: pool.arms for pool in study.pools}
    last = max((each.record.steps[1] for each in outcomes.runs), default=0)
    panels = []
    for metric in study.curves:
        for chunk in (*_by_six(members), *_by_six(pools)):
            lines = tuple(
                chart.Curve(name, mean_series(metric, [records[arm] for arm in arms]), hue)
                for hue, (name, arms) in enumerate(chunk, start=1)
            )
            unit = unit_of(metric)
            axis = chart.Axis.SHARE if unit == "share" else chart.Axis.FITTED
            drawn = draw(Panel(metric, unit, lines, axis), chart.Frame((0, max(last, 1))))
            if drawn is not None:
                panels.append(drawn)
    return panels


def _by_six(members: Mapping[str, tuple[str, ...]]) -> list[list[tuple[str, tuple[str, ...]]]]:
    named = list(members.items())
    return [named[start : start + HUES] for start in range(0, len(named), HUES)]


def mean_series(metric: str, by_arm: Sequence[Mapping[int, RunRecord]]) -> Series:
    """The mean over the seeds at each step that any of them has, with Student's interval over the seeds.

    `by_arm`: for each arm, seed -> its run. Several arms count as the mean over them, where all have a value.
    """
    by_step: dict[int, list[float]] = {}
    for records in shared(by_arm).values():
        values = [{point.step: float(point.number or 0.0) for point in each.get(metric).numeric} for each in records]
        for step, found in shared(values).items():
            by_step.setdefault(step, []).append(fmean(found))
    return Series(
        metric, tuple(Point(step, within_range(mean_over(metric, by_step[step]))) for step in sorted(by_step))
    )


def over_the_dial(study: Study, outcomes: Outcomes) -> list[DrawnPanel]:
    """Each measure over the arms' levels, where the study has a dial; six lines of arms to a chart."""
    of_dial = {arm.name: arm for arm in study.arms if arm.level is not None}
    if not study.dial or not of_dial:
        return []
    panels = []
    for outcome in outcomes.measures:
        joined: dict[str, list[Place]] = {}
        for found in outcome.arms:
            arm, value = of_dial.get(found.arm), found.mean.number
            if arm is not None and arm.level is not None and value is not None:
                text = f"{found.arm}: {numeral(value)}"
                place = Place(arm.level, value, found.mean.low, found.mean.high, text)
                joined.setdefault(arm.line or outcome.measure.title, []).append(place)
        labels = list(joined)
        for start in range(0, len(labels), HUES):
            lines = [
                Line(label, hue, tuple(sorted(joined[label], key=lambda place: place.x)))
                for hue, label in enumerate(labels[start : start + HUES], start=1)
            ]
            panels.append(figure(outcome.measure.title, outcome.measure.metric, lines, study.dial))
    return panels


def figure(
    title: str,
    unit: str,
    lines: Sequence[Line],
    x_title: str,
    y_range: tuple[float, float] | None = None,
    x_range: tuple[float, float] | None = None,
) -> DrawnPanel:
    """A chart of these lines. Without ranges the axes fit the values."""
    low, high = y_range or _span([value for line in lines for p in line.places for value in (p.y, p.low, p.high)])
    x, marks = _across([place.x for line in lines for place in line.places], x_range)
    y = chart.height(low, high)
    parts = [chart.opened(title), *chart.grid(low, high, y)]
    parts += [chart.tick(x(at), chart.BOTTOM + 16, "middle", f"{at:g}".replace("-", "−")) for at in marks]
    parts.append(Markup('<path class="axis" d="M{} {}H{}"/>').format(chart.LEFT, chart.BOTTOM, chart.RIGHT))
    for number, line in reversed(list(enumerate(lines))):
        shift = 4.0 * (number - (len(lines) - 1) / 2) if line.dots else 0.0
        parts.append(_line(line, [(x(p.x) + shift, y(p.y)) for p in line.places], y))
    parts += [chart.tick(chart.RIGHT, chart.HEIGHT - 4, "end", x_title), Markup("</svg>")]
    legend = tuple((chart.key(chart.Curve(line.label, Series("", ()), line.hue)), line.label) for line in lines)
    hover = '{"steps":[],"places":[],"curves":[]}'
    return DrawnPanel(title, unit, Markup("").join(parts), hover, legend, "", (), ())


def _across(
    placed: Sequence[float], x_range: tuple[float, float] | None
) -> tuple[Callable[[float], float], list[float]]:
    """The horizontal place of a value, and the values that the axis names."""
    scale: Callable[[float], float] = float
    if x_range is None and 0 < WIDE * min(placed) <= max(placed):
        scale, marks = math.log10, sorted(set(placed))
        left, right = scale(marks[0]), scale(marks[-1])
    else:
        left, right = x_range or _span(placed, margin=0.0)
        marks = ticks(left, right, 6, whole=x_range is None and all(value == round(value) for value in placed))
    unit = (chart.RIGHT - chart.LEFT - 16) / ((right - left) or 1.0)
    return lambda value: chart.LEFT + 8 + unit * (scale(value) - left), marks


def _line(line: Line, places: Sequence[tuple[float, float]], y: chart.Scale) -> Markup:
    parts = [Markup('<path class="line c{}" d="{}"/>').format(line.hue, chart.path(places))]
    for place, (across, up) in zip(line.places, places, strict=True):
        if place.low is not None and place.high is not None:
            parts.append(
                Markup('<path class="bar c{}" d="M{:.1f} {:.1f}V{:.1f}"/>').format(
                    line.hue, across, y(place.low), y(place.high)
                )
            )
        if line.dots:
            parts.append(
                Markup('<path class="dot c{}" d="{}"><title>{}</title></path>').format(
                    line.hue, chart.shape(line.hue, across, up), f"{line.label}, {place.text}"
                )
            )
    return Markup("").join(parts)


def _span(values: Sequence[float | None], margin: float = 0.06) -> tuple[float, float]:
    numbers = [value for value in values if value is not None]
    low, high = min(numbers), max(numbers)
    room = (high - low) or abs(high) or 1.0
    if low >= 0 and margin:
        return 0.0, high + margin * room
    if high == low:
        return low - 0.5 * room, high + 0.5 * room
    return low - margin * room, high + margin * room


def legend_of(study: Study) -> Mapping[str, Markup]:
    """The sample of each arm's line."""
    return {
        arm.name: chart.key(chart.Curve(arm.name, Series("", ()), 1 + number % HUES))
        for number, arm in enumerate(study.arms)
    }
