"""Bars with intervals: on zero, on one scale, and what leaves the frame is marked."""

import re

from heedful.report.drawing.bars import Bars, common_range, draw_bars
from heedful.types import Metric


def bars(*metrics: Metric) -> Bars:
    return Bars("signal", 1, metrics)


def test_panels_share_a_scale_that_holds_zero_and_all_values() -> None:
    low, high = common_range([[bars(Metric("a", 2.0))], [bars(Metric("a", 5.0, low=4.0, high=6.0))]])
    assert low == 0.0
    assert 6.0 < high < 7.0
    low, high = common_range([[bars(Metric("a", -1.0), Metric("b", 3.0))]])
    assert low < -1.0
    assert high > 3.0
    low, high = common_range([[bars(Metric("a", 1.0, low=-50.0, high=50.0))]])
    assert -1.5 < low < -1.0  # a wide interval does not dwarf the values
    assert common_range([[bars(Metric("a", None, why="nothing"))]]) == (0.0, 1.0)


def test_bars_stand_on_zero_and_say_what_they_are() -> None:
    panel = [bars(Metric("a", 1.0, n=4), Metric("b", -1.0), Metric("c", None, why="no <group>"))]
    svg = draw_bars(panel, ["0", "1", "all"], ["n 4", "n 2", "n 0"], (-2.0, 2.0), "Step 1")
    ground = float(re.search(r'class="axis" d="M\d+ ([\d.]+)H', svg)[1])
    boxes = re.findall(r'class="area c1" d="M[\d.]+ ([\d.]+)H[\d.]+V([\d.]+)H', svg)
    assert [float(start) for start, _ in boxes] == [ground, ground]
    assert float(boxes[0][1]) < ground < float(boxes[1][1])
    assert "<title>signal, 0: 1, n 4</title>" in svg
    assert "signal, all: missing: no &lt;group&gt;" in svg
    assert svg.count('class="lost c1"') == 1


def test_an_interval_that_leaves_the_frame_ends_in_an_arrow() -> None:
    inside = draw_bars([bars(Metric("a", 1.0, low=0.5, high=1.5))], ["0"], [""], (0.0, 2.0), "t")
    outside = draw_bars([bars(Metric("a", 1.0, low=-3.0, high=3.0))], ["0"], [""], (-0.5, 2.0), "t")
    assert "l3 -4l3 4" not in inside
    assert "l3 -4l3 4" in outside
    assert "l3 4l3 -4" in outside
