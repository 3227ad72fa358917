"""The report draws what right first actions come from, and what replies agree by where none is known."""

from pathlib import Path

import pytest

from heedful.report.panels import first_panels
from heedful.report.record import read_run
from heedful.storage import RunFolder, write_whole

PARTS = ("", "_by_chance", "_by_thought", "_by_prompt", "_by_both")
TITLES = {"right": "Right first actions, by their carrier", "agreed": "Agreement, by its carrier"}


@pytest.mark.parametrize(("head", "known"), [("grounding", True), ("grounding", False), ("grounding@judge", True)])
def test_the_parts_of_rightness_are_one_chart(tmp_path: Path, head: str, known: bool) -> None:
    readings = [f'"{head}/agreed{part}": 0.2' for part in PARTS]
    readings += [f'"{head}/right{part}": {0.1 if known else "null"}' for part in PARTS]
    folder = RunFolder(tmp_path)
    write_whole(folder.metrics, f'{{"step": 0, "time": 1.0, "metrics": {{{", ".join(readings)}}}}}\n')
    panels = {panel.title: panel for panel in first_panels(read_run(folder))}
    title = TITLES["right" if known else "agreed"]
    drawn = {curve.label: curve.series.numeric[0].number for curve in panels[title].curves}
    carriers = {"by the thought", "by the prompt past the thought", "by both together only", "by chance"}
    assert drawn == dict.fromkeys(carriers, 0.1 if known else 0.2)
    assert panels[title].stacked
    assert (set(TITLES.values()) - {title}).isdisjoint(panels)
