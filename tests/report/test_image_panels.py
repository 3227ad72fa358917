"""The charts of exchanged pictures stand in the report of a run with pictures, and in no other."""

from pathlib import Path

from heedful.report import write_report
from heedful.report.drawing.panel import Question
from heedful.report.panels import questions
from heedful.report.record import read_run
from heedful.storage import RunFolder, write_whole

LINE = '{"step": 0, "time": 1.0, "metrics": {%s}}\n'


def run(tmp_path: Path, *names: str) -> RunFolder:
    folder = RunFolder(tmp_path)
    write_whole(folder.metrics, LINE % ", ".join(f'"{name}": 0.5' for name in names))
    return folder


def asked(folder: RunFolder) -> dict[str, Question]:
    return {question.id: question for question in questions(read_run(folder))}


def test_pictures_have_a_section_of_their_own(tmp_path: Path) -> None:
    gaps = [f"information/{scope}/gap" for scope in ("image", "text", "first_turn", "image_all")]
    folder = run(tmp_path, *gaps)
    found = asked(folder)["pictures"]
    shown = {panel.title: [curve.label for curve in panel.curves if curve.series.points] for panel in found.panels}
    exchanged = ["picture, first turn", "text, first turn", "both, first turn", "all pictures, later turn"]
    assert shown == {"Gap, by what is exchanged": exchanged}
    assert "Is the picture read?" in write_report(folder).read_text()


def test_a_run_of_text_has_no_such_section(tmp_path: Path) -> None:
    folder = run(tmp_path, "information/first_turn/gap", "information/first_turn/mi")
    assert "pictures" not in asked(folder)
    assert "Is the picture read?" not in write_report(folder).read_text()
