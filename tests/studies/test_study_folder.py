"""The folder of a study: claimed once, gone on with, and refused to anything else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from heedful.studies.declaration import Arm, Measure, Study, study_to_json, train
from heedful.studies.study_folder import StudyFolder


def declared(flags: str = "--steps 3", **changes: object) -> Study:
    study = Study(
        "little",
        "What?",
        (Arm("a", train("echo", flags)), Arm("b", train("echo", f"{flags} --filter keep_all"))),
        seeds=(0, 1),
        measures=(Measure("success", "success/rate"),),
    )
    return replace(study, **changes)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    folder = StudyFolder(tmp_path / "out")
    folder.claim(declared(), {}, remeasure=False)
    return folder


def test_a_claimed_folder_holds_the_declaration_and_is_claimed_again(folder: StudyFolder) -> None:
    folder.claim(declared(), {"seeds": [5]}, remeasure=False)
    tree = json.loads(folder.declaration.read_text())
    assert tree["study"]["arms"][0]["job"]["config"]["steps"] == 3
    assert tree["starts"] == [{}, {"seeds": [5]}]
    assert tree["environment"]["versions"]["heedful"] is not None or "heedful" in tree["environment"]["versions"]


def test_runs_go_seed_by_seed(folder: StudyFolder) -> None:
    assert [run.label for run in folder.runs(declared())] == ["a/s0", "b/s0", "a/s1", "b/s1"]
    assert folder.run("a", 1).folder.path == folder.path / "a" / "s1"


def test_a_changed_arm_is_refused_by_the_setting_that_changed(folder: StudyFolder) -> None:
    with pytest.raises(ValueError, match=r"arm a: config\.steps was 3, is 4; arm b: config\.steps was 3, is 4\. Give"):
        folder.claim(declared("--steps 4"), {}, remeasure=False)
    with pytest.raises(ValueError, match=r"config\.filter"):
        folder.claim(declared("--steps 3 --filter top_k"), {}, remeasure=True)


def test_further_seeds_and_arms_join_those_that_are_there(folder: StudyFolder) -> None:
    third = Arm("c", train("echo", "--steps 9"))
    folder.claim(declared(seeds=(2,), arms=(declared().arms[1], third)), {}, remeasure=False)
    tree = json.loads(folder.declaration.read_text())["study"]
    assert sorted(arm["name"] for arm in tree["arms"]) == ["a", "b", "c"]
    assert tree["seeds"] == [0, 1, 2]
    with pytest.raises(ValueError, match=r"in .*study\.json cannot be used[^$]*expected distinct arms, found A, "):
        folder.claim(declared(arms=(Arm("A", train("echo")),)), {}, remeasure=False)
    assert json.loads(folder.declaration.read_text())["study"] == tree  # it can still be read
    # The arm that was left out this time is still held to what it was.
    with pytest.raises(ValueError, match="arm a"):
        folder.claim(declared("--steps 4"), {}, remeasure=False)


def test_changed_measures_are_refused_unless_asked_for_and_then_noted(folder: StudyFolder) -> None:
    other = declared(measures=(Measure("success", "success/rate", "mean"),))
    with pytest.raises(ValueError, match=r"measures\.success\.when was last, is mean\. Add --remeasure"):
        folder.claim(other, {}, remeasure=False)
    folder.claim(other, {}, remeasure=True)
    folder.claim(other, {}, remeasure=False)
    assert json.loads(folder.declaration.read_text())["remeasured"] == ["measures.success.when was last, is mean"]
    twice = Measure("success", "success/rate", "mean")
    folder.claim(declared(measures=(twice, twice)), {}, remeasure=True)
    with pytest.raises(ValueError, match=r"measures\.0\.when was mean, is last"):
        folder.claim(declared(measures=(replace(twice, when="last"), twice)), {}, remeasure=False)


def test_words_of_a_declaration_may_change(folder: StudyFolder) -> None:
    folder.claim(declared(question="What else?", notes=("A limit.",)), {}, remeasure=False)
    assert json.loads(folder.declaration.read_text())["remeasured"] == []


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="found other files"):
        StudyFolder(tmp_path).claim(declared(), {}, remeasure=False)


def test_states_are_remembered(folder: StudyFolder) -> None:
    assert folder.read_states() == {}
    folder.write_states({"a/s0": {"state": "stopped", "seconds": 2.5}})
    assert folder.read_states() == {"a/s0": {"state": "stopped", "seconds": 2.5}}


def test_thresholds_of_alarms_that_only_warn_may_change_with_a_note(folder: StudyFolder) -> None:
    stricter = declared("--steps 3 --diagnostics.alarms.threshold 9")
    with pytest.raises(ValueError, match=r"arm a: config\.diagnostics\.alarms\.threshold was [\d.]+, is 9\.0"):
        folder.claim(stricter, {}, remeasure=False)
    folder.claim(stricter, {}, remeasure=True)
    assert len(json.loads(folder.declaration.read_text())["remeasured"]) == 2


def test_thresholds_of_alarms_that_stop_a_run_may_not_change(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "stopping")
    folder.claim(declared("--steps 3 --on-collapse stop"), {}, remeasure=False)
    with pytest.raises(ValueError, match=r"Give another --out"):
        folder.claim(declared("--steps 3 --on-collapse stop --diagnostics.alarms.threshold 9"), {}, remeasure=True)


def test_a_setting_that_is_new_in_this_version_has_its_default_in_an_older_declaration(folder: StudyFolder) -> None:
    tree = json.loads(folder.declaration.read_text())
    for arm in tree["study"]["arms"]:
        del arm["job"]["config"]["diagnostics"]["replays"], arm["line"]
    folder.declaration.write_text(json.dumps(tree))
    folder.claim(declared(), {}, remeasure=False)
    assert json.loads(folder.declaration.read_text())["study"] == study_to_json(declared())
    tree["study"]["arms"][0]["job"]["config"]["colour"] = "red"
    folder.declaration.write_text(json.dumps(tree))
    with pytest.raises(ValueError, match="colour was red, is absent"):
        folder.claim(declared(), {}, remeasure=False)


def test_a_study_that_cannot_be_used_is_named_with_its_file(folder: StudyFolder) -> None:
    tree = json.loads(folder.declaration.read_text())
    tree["study"]["minutes"] = -1
    folder.declaration.write_text(json.dumps(tree))
    with pytest.raises(ValueError, match=r"^The study in .*study\.json cannot be used(.|\n)*minutes: expected"):
        folder.read_study()
