"""A chart as an SVG file of its own, with title, legend and colours, for a page that is not heedful's."""

from __future__ import annotations

from markupsafe import Markup

from heedful.boundary import clean
from heedful.report.drawing.chart import HEIGHT, LEFT, RIGHT, WIDTH
from heedful.report.drawing.panel import DrawnPanel

ROW = 17
"""Pixels of a line of the legend."""
LETTER = 6.3
"""Pixels that a letter of the legend takes at most, on average."""
TITLE = 24
KEY = 32
_OWN = ".ground { fill: var(--card); } .chart .title { font-size: 13px; font-weight: 600; fill: var(--ink); }"


def standalone(panel: DrawnPanel, style: str) -> str:
    """The file. `style`: the rules of `report/layouts/charts.css`. It follows the light or dark mode of its reader.
    Control characters are written as escapes: XML takes none.

    Raises ValueError for a panel without a chart.
    """
    if panel.absent:
        raise ValueError(f"Expected a panel with a chart, found none for {panel.title}: {panel.absent}")
    legend, x, y = list[Markup](), float(LEFT), TITLE + 16
    for sample, label in panel.legend:
        width = KEY + LETTER * len(label)
        if x > LEFT and x + width > RIGHT:
            x, y = float(LEFT), y + ROW
        place = Markup('<svg x="{:.1f}" y="{}" width="26" height="12" viewBox="0 0 26 12">').format(x, y)
        inside = Markup(str(sample).partition(">")[2])  # the sample without the tag of its own <svg>
        text = Markup('<text x="{:.1f}" y="{}">{}</text>').format(x + KEY, y + 10, label)
        legend += [place, inside, text]
        x += width + 12
    top = y + ROW
    whole = top + HEIGHT
    return clean(
        Markup('<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {} {}" width="{}">').format(
            WIDTH, whole, WIDTH
        )
        + Markup("<style>{}{}</style>").format(Markup(style), Markup(_OWN))
        + Markup('<rect class="ground" width="{}" height="{}"/>').format(WIDTH, whole)
        + Markup('<text class="title" x="{}" y="17">{}</text>').format(LEFT, panel.title)
        + Markup('<text x="{}" y="{}">{}</text>').format(LEFT, TITLE + 8, panel.unit)
        + Markup("").join(legend)
        + Markup('<svg y="{}" width="{}" height="{}" viewBox="0 0 {} {}">').format(top, WIDTH, HEIGHT, WIDTH, HEIGHT)
        + Markup(str(panel.svg).partition(">")[2])
        + Markup("</svg>\n")
    )
