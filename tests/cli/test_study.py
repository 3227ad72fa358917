"""`heedful study`: lists, explains, prints, refuses, and runs."""

import json
from pathlib import Path

import pytest

from heedful import cli
from heedful.studies import STUDIES
from heedful.studies.declaration import study_from_json
from stand_in import in_place_of_heedful

MINE = {
    "name": "mine",
    "question": "Does it run?",
    "seeds": [0, 1],
    "arms": [{"name": "only", "job": {"type": "train", "preset": "echo", "flags": "--model some/model --device cpu"}}],
    "minutes": 3,
}


@pytest.fixture
def behaviour(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Name of the run -> what stands in for `heedful train` does."""
    found: dict[str, str] = {}
    in_place_of_heedful(monkeypatch, found)
    return found


@pytest.fixture
def mine() -> str:
    Path("mine.json").write_text(json.dumps(MINE))
    return "mine.json"


def test_alone_it_lists_the_studies_with_their_questions_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["study"]) == 0
    shown = capsys.readouterr().out
    for name, make in STUDIES.items():
        assert f"\n  {name}\n" in shown
        assert make().question in shown
    assert "on one core" in shown


def test_help_shows_question_arms_seeds_and_cost(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["study", "smoke", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Does the machinery of studies work?" in shown
    assert "Arms (2) x seeds 0, 1:" in shown
    assert "trains echo for 4 steps" in shown
    assert "top_p against keep_all" in shown
    assert "and 1 model to grow, unless stored" in shown
    assert "Folder: runs/study-smoke" in shown
    assert cli.run(["study", mine, "--seeds", "1,2,3", "--steps", "10", "--processes", "3", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "trains echo for 10 steps" in shown
    # 3 minutes for 20 steps, so 1.5 for 10.
    assert "3 runs of about 1.5 min: 4m30s on one core, 1m30s with 3 at a time\n" in shown
    assert "Folder: runs/study-mine-10-steps" in shown
    assert not Path("runs").exists()


def test_a_declaration_is_printed_and_can_be_used_as_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["study", "smoke", "--arms", "top_p,keep_all", "--print"]) == 0
    tree = json.loads(capsys.readouterr().out)
    study = study_from_json(tree)
    assert [arm.name for arm in study.arms] == ["top_p", "keep_all"]
    tree["name"] = "again"
    Path("again.json").write_text(json.dumps(tree))
    assert cli.run(["study", "again.json", "--help"]) == 0
    assert "Arms (2) x seeds 0, 1:" in capsys.readouterr().out


def test_a_study_runs_and_goes_on_in_its_folder(
    mine: str, behaviour: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    behaviour["s1"] = "fails"
    assert cli.run(["study", mine]) == 1
    assert "1 of 2 runs failed: only/s1" in capsys.readouterr().out
    behaviour.clear()
    assert cli.run(["study", mine, "--out", "runs/study-mine"]) == 0
    assert "2 runs in runs/study-mine, 1 of them over already" in capsys.readouterr().out
    assert Path("runs/study-mine/study.html").exists()


def test_a_study_in_a_folder_is_read_again_and_resumed_without_its_name(
    mine: str, behaviour: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    behaviour["s1"] = "fails"
    assert cli.run(["study", mine]) == 1
    Path("runs/study-mine/study.html").unlink()
    assert cli.run(["report", "runs/study-mine"]) == 0
    assert "Unfinished: 1 of 2 runs are over" in capsys.readouterr().out
    assert Path("runs/study-mine/study.html").exists()
    behaviour.clear()
    assert cli.run(["train", "--resume", "runs/study-mine"]) == 0
    assert "2 runs in runs/study-mine, 1 of them over already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["smoke", "--seeds", "0,a"], '--seeds: expected a whole number, found "a"'),
        (["smoke", "--seeds", "1,1"], "--seeds: expected a list of different items, each a whole number, found [1, 1]"),
        (["smoke", "--processes", "0"], "--processes: expected a whole number of at least 1"),
        (["smoke", "--steps", "-1"], "--steps: expected a whole number of at least 1"),
        (["smoke", "--quick"], "--quick: unknown flag"),
        (["--job", "none.json", "--out", "x", "--seed", "1"], "at none.json, found nothing"),
        (["--job", "none.json"], "Expected heedful study --job FILE"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["study", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("runs").exists()
