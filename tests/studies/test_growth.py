"""Models that several runs begin with: grown before them, several at the same time, once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("transformers")

from heedful.cli.study import main
from heedful.configuration import to_json
from heedful.run.config import TrainConfig
from heedful.studies.declaration import Arm, Study, settings, train
from heedful.studies.running import growth, runner
from heedful.studies.running.growth import grow_shared
from heedful.studies.running.processes import Child
from heedful.studies.running.runner import Request, run_study

TINY = "--seedling.hidden 32 --seedling.layers 1 --seedling.heads 2 --seedling.ffn 32"
TWO = [settings("echo", f"{TINY} --seedling.steps {steps}") for steps in (2, 3)]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "seedlings"


@pytest.fixture
def console() -> Console:
    return Console(highlight=False, width=160)


def grown(configs: list[TrainConfig], workers: int, console: Console) -> int:
    return grow_shared(configs * 2, workers, 0, console)


def test_several_models_are_grown_at_the_same_time_and_once(
    empty_cache: Path, started: list[Child], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    assert grown(TWO, 2, console) == 0
    assert [child.label for child in started] == ["model 1, echo", "model 2, echo"]
    shown = capsys.readouterr().out
    assert "growing 2 models, 2 at a time" in shown
    together = {folder.name: (folder / "model.safetensors").read_bytes() for folder in empty_cache.iterdir()}
    assert len(together) == 2
    assert grown(TWO, 2, console) == 0
    assert len(started) == 2
    assert capsys.readouterr().out == ""
    for folder in empty_cache.iterdir():
        folder.rename(folder.with_name("old-" + folder.name))
    assert grown(TWO, 1, console) == 0
    assert len(started) == 2, "one at a time: in this process"
    assert {name: (empty_cache / name / "model.safetensors").read_bytes() for name in together} == together


def test_a_model_of_one_run_is_left_to_it(empty_cache: Path, started: list[Child], console: Console) -> None:
    assert grow_shared(TWO, 2, 0, console) == 0
    assert grow_shared([replace(TWO[0], model="some/model")] * 2, 2, 0, console) == 0
    assert started == []
    assert not empty_cache.exists()


def test_what_cannot_be_grown_is_told_after_the_others_are(
    empty_cache: Path, started: list[Child], console: Console
) -> None:
    blind = settings("frozen_lake", "--env.observation image")
    with pytest.raises(ValueError, match="Expected a seedling that sees"):
        grown([blind, TWO[1]], 2, console)
    assert [child.label for child in started] == ["model 1, frozen_lake", "model 2, echo"]
    assert [folder.name.partition("-")[0] for folder in empty_cache.iterdir()] == ["echo"]


def test_an_interruption_ends_the_study_before_its_runs(
    monkeypatch: pytest.MonkeyPatch, console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth, "run_children", lambda children, workers, show: 15)
    monkeypatch.setattr(runner, "run_children", None)
    arms = tuple(Arm(f"a{at}", train("echo", f"{TINY} --seedling.steps {at + 2}")) for at in range(2))
    assert run_study(Request(Study("little", "What?", arms, (0, 1)), Path("out"), processes=2), console) == 128 + 15
    assert "interrupted; go on with the same command" in capsys.readouterr().out
    assert not Path("out/a0/s0").exists()


def test_a_study_has_no_arm_that_grows(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"type": "grow", "config": to_json(TWO[0])}))
    assert main(["--job", str(job), "--out", str(tmp_path / "run"), "--seed", "0"]) == 0
    arm = {"name": "a", "job": json.loads(job.read_text())}
    study = {"name": "a", "question": "What?", "arms": [arm], "seeds": [0]}
    (tmp_path / "study.json").write_text(json.dumps(study))
    with pytest.raises(ValueError, match="one of train, sample, rank, part, gradients, found 'grow'"):
        main([str(tmp_path / "study.json")])
