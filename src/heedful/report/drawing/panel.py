"""One chart of a page: what it shows, and how it is drawn with its legend and its words.

Promise: a chart that has nothing to show says why. Only optional charts are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup

from heedful.boundary.foreign_text import listed
from heedful.diagnostics.catalogue import entry_of
from heedful.report.drawing.chart import Axis, Curve, Frame, draw_lines, draw_shares, key
from heedful.report.record import RunRecord, Series

MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart to draw."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    axis: Axis = Axis.FITTED
    stacked: bool = False
    optional: bool = False
    """Left out where nothing of it was recorded."""


@dataclass(frozen=True, slots=True)
class DrawnPanel:
    """One chart with its legend and its words, ready for the page."""

    title: str
    unit: str
    svg: Markup = field(default_factory=Markup)
    hover: str = '{"steps":[],"places":[],"curves":[]}'
    """`Chart.hover`. Bars have titles of their own."""
    legend: tuple[tuple[Markup, str], ...] = ()
    absent: str = ""
    """Why there is no chart at all; empty where there is one."""
    gaps: tuple[str, ...] = ()
    """Which curves miss values, and why."""
    about: tuple[tuple[str, str], ...] = ()
    """Metric names and their definitions."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a reader asks, and the charts that answer it."""

    id: str
    title: str
    lead: str
    panels: tuple[Panel, ...]


def some(run: RunRecord, *choices: tuple[str, str, int]) -> tuple[Curve, ...]:
    """Curves as (label, metric, hue)."""
    return tuple(Curve(label, run.get(name), hue) for label, name, hue in choices)


def draw(panel: Panel, frame: Frame) -> DrawnPanel | None:
    """Draw one chart; `None` for an optional one without any value."""
    recorded = [curve for curve in panel.curves if curve.series.points]
    measured = [curve for curve in recorded if curve.series.numeric]
    if panel.optional and not recorded:
        return None
    about = tuple(
        (curve.series.name, known.text)
        for curve in (recorded or panel.curves)
        if (known := entry_of(curve.series.name)) is not None
    )
    title = f"{panel.title}, {panel.unit}" if panel.unit else panel.title
    if not any(not curve.reference for curve in measured):
        absent = "; ".join(list(dict.fromkeys(_gaps(curve.series) for curve in recorded))[:MOST_REASONS])
        names = " or ".join(curve.series.name for curve in panel.curves if not curve.reference)
        absent = absent or f"This run did not record {names}."
        return DrawnPanel(panel.title, panel.unit, absent=absent, about=about)
    if panel.stacked:
        chart = draw_shares(measured, frame, title)
    else:
        chart = draw_lines(measured, frame, panel.axis, title)
    legend = tuple((key(curve, panel.stacked), curve.label) for curve in measured)
    gaps = tuple(f"{curve.label}: {_gaps(curve.series)}" for curve in panel.curves if _gaps(curve.series))
    return DrawnPanel(panel.title, panel.unit, chart.svg, chart.hover, legend, gaps=gaps, about=about)


def _gaps(series: Series) -> str:
    """`missing at steps 4, 8 and 3 more: one prompt`, or nothing."""
    missing = series.missing
    if not missing:
        return ""
    reasons = "; ".join(list(dict.fromkeys(point.metric.why or "no reason given" for point in missing))[:MOST_REASONS])
    if len(missing) > 1 and not series.measured:
        return f"missing at all {len(missing)} values: {reasons}"
    steps = [str(point.step) for point in missing]
    return f"missing at step{'s' if len(steps) > 1 else ''} {listed(steps, 3)}: {reasons}"
