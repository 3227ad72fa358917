"""A chart as a file: well-formed, with its words, and with a colour for every class that it uses."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from heedful.report.drawing import chart
from heedful.report.drawing.chart import RIGHT, Curve, Frame
from heedful.report.drawing.panel import DrawnPanel, Panel, draw
from heedful.report.drawing.standalone import standalone
from heedful.report.record import Point, Series
from heedful.report.templates import chart_style
from heedful.types import Metric

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*labels: str, values: tuple[float, ...] = (0.2, 0.6)) -> DrawnPanel:
    """Success of one run per label at steps 0, 5, ...."""
    curves = tuple(
        Curve(
            label,
            Series("success/rate", tuple(Point(5 * at, Metric("success/rate", v, 8)) for at, v in enumerate(values))),
            hue,
        )
        for hue, label in enumerate(labels, start=1)
    )
    panel = draw(Panel("success & <more>", "share", curves), Frame((0, 5)))
    assert panel is not None
    return panel


def test_the_file_is_well_formed_and_names_what_it_shows() -> None:
    tree = ET.fromstring(standalone(drawn("a <b> & c", "other"), chart_style()))
    texts = [each.text for each in tree.iter(f"{SVG}text")]
    assert texts[:2] == ["success & <more>", "share"]
    assert "a <b> & c" in texts
    assert "training step" in texts
    chart = tree.findall(f"{SVG}svg")[-1]
    assert len([path for path in chart.iter(f"{SVG}path") if "line" in path.get("class", "")]) == 2


def test_control_characters_are_written_as_escapes_since_xml_takes_none() -> None:
    tree = ET.fromstring(standalone(drawn("a\x1b[31m", "b\x02"), chart_style()))
    assert {r"a\x1b[31m", r"b\x02"} <= {each.text for each in tree.iter(f"{SVG}text")}


def test_every_class_and_variable_of_the_file_has_a_rule() -> None:
    text = standalone(drawn(*"abcdef"), chart_style())
    style = text[text.index("<style>") : text.index("</style>")]
    for variable in re.findall(r"var\((--[\w-]+)\)", style):
        assert f"{variable}:" in style
    for name in {name for classes in re.findall(r'class="([^"]+)"', text) for name in classes.split()} - {"tick"}:
        assert f".{name}" in style, name


def test_a_long_legend_goes_on_in_further_lines_inside_the_picture() -> None:
    short, long = (ET.fromstring(standalone(drawn(*labels), chart_style())) for labels in ("ab", ["x" * 30] * 4))
    heights = [float(tree.get("viewBox", "").split()[3]) for tree in (short, long)]
    assert heights[1] > heights[0]
    samples = [each for each in long.findall(f"{SVG}svg") if each.get("x")]
    assert len({each.get("y") for each in samples}) == 4
    assert all(float(each.get("x", "")) < RIGHT for each in samples)


def test_without_a_chart_there_is_no_file() -> None:
    with pytest.raises(ValueError, match="Expected a panel with a chart, found none for success"):
        standalone(drawn("a", values=()), chart_style())


def test_the_numbers_of_the_axis_fit_beside_it() -> None:
    for most in (1, 30_000, 300_000, 9_000_000):
        numbers = [re.sub("<[^>]*>", "", part) for part in chart.grid(0, most, float) if "<text" in part]
        assert len(set(numbers)) == len(numbers) > 3
        assert max(map(len, numbers)) <= 6, numbers
    assert "300k" in "".join(chart.grid(0, 300_000, float))
