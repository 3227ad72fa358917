"""Thoughts token by token beside the retrieval map, and the scopes side by side."""

import re
from pathlib import Path

import pytest

from heedful.report import write_report
from heedful.report.embedding import unpacked
from heedful.report.panels import questions
from heedful.report.record import read_run
from heedful.report.retrieval_map import colour_scale, retrieval_frames
from heedful.storage import RunFolder, TokenValues, read_scores, write_scores, write_whole
from heedful.types import CrossScores

HOSTILE = "</script><b>"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    line = '{"step": 20, "time": 1.0, "metrics": {%s}}\n'
    names = [f"information/{scope}/gap_per_token" for scope in ("first_turn", "any_turn", "observation")]
    names += ["information/any_turn/mi", "information@other/first_turn/gap_per_token"]
    write_whole(folder.metrics, line % ", ".join(f'"{name}": 1.5' for name in names))
    scores = CrossScores([[-1.0, -2.0], [-3.0, -1.0], [-2.0, -3.0]], [2, 3, 1], [0, 1, 0])
    words = [TokenValues(0, ("go ", "up"), (0.25, -1.5)), TokenValues(1, ("no", HOSTILE, "!"), (0.0, 0.004, 0.5))]
    write_scores(folder.scores(20), scores, ["go up", f"no{HOSTILE}!", "x"], ["p", "q"], words)
    return folder


def test_tokens_stand_where_their_thought_stands(run: RunFolder) -> None:
    (frame,) = retrieval_frames(run).frames
    assert frame["thoughts"] == [["go up", "x"], [f"no{HOSTILE}!"]]
    words = frame["words"]
    assert words[0][0] == {"tokens": [("go ", 25), ("up", -150)], "left_out": 0, "sum": -1.25}
    assert words[0][1] is None
    assert words[1][0]["tokens"] == [("no", 0), (HOSTILE, 0), ("!", 50)]


def test_the_full_colour_is_what_few_tokens_exceed(run: RunFolder) -> None:
    assert colour_scale(read_scores(run.scores(20))) == pytest.approx(1.4)
    write_scores(run.scores(20), CrossScores([[-1.0]], [1], [0]), ["x"], ["p"])
    assert colour_scale(read_scores(run.scores(20))) is None


def test_tokens_reach_the_page_as_inert_text_with_a_legend_in_nats(run: RunFolder) -> None:
    page = write_report(run).read_text()
    assert HOSTILE not in page
    (frames,) = re.findall(r'id="pack-0-frames">(.*?)</script>', page)
    assert unpacked(frames)["frames"][0]["words"][0][0]["tokens"] == [["go ", 25], ["up", -150]]
    assert "what each token tells of its own prompt" in page
    assert "No thoughts were exchanged, or actions are free text." in page


def test_scopes_and_judges_stand_side_by_side(run: RunFolder) -> None:
    (listens,) = (question for question in questions(read_run(run)) if question.id == "listens")
    curves = {panel.title: [curve.label for curve in panel.curves] for panel in listens.panels}
    scopes = ["first turn", "any turn", "last observation swapped"]
    assert curves["8-way retrieval"] == scopes
    assert curves["Gap between own and other prompts"] == [*scopes, "first turn, judge other"]
