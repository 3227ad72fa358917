"""Models that several runs begin with: grown before them, several at the same time, once."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("transformers")

from heedful.boundary import to_json
from heedful.cli.study import main
from heedful.run.config import TrainConfig
from heedful.studies.declaration import Arm, Study, settings, train
from heedful.studies.jobs import GrowthJob, StoredJob
from heedful.studies.running.growth import Growths, growths
from heedful.studies.running.processes import Child, run_children
from heedful.studies.running.runner import Request, run_study
from patience import comes
from stand_in import in_place_of_heedful

TINY = "--seedling.hidden 32 --seedling.layers 1 --seedling.heads 2 --seedling.ffn 32"
TWO = [settings("echo", f"{TINY} --seedling.steps {steps}") for steps in (2, 3)]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "seedlings"


@pytest.fixture
def console() -> Console:
    return Console(highlight=False, width=160)


def shared(configs: list[TrainConfig], console: Console) -> Growths:
    """Of runs of which two begin with each of these."""
    runs = {f"run {at}": config for at, config in enumerate(configs * 2)}
    return growths(runs, Path("growing"), 0, console)


def stored(cache: Path) -> dict[str, bytes]:
    return {folder.name: (folder / "model.safetensors").read_bytes() for folder in cache.iterdir()}


def test_several_models_are_grown_once_to_the_bytes_of_one_alone(
    empty_cache: Path, started: list[Child], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    grown = shared(TWO, console)
    assert not any(grown.done(f"run {at}") for at in range(4))
    run_children(grown.children, 2, lambda states: grown.tell())
    assert all(grown.done(f"run {at}") for at in range(4))
    assert [child.label for child in started] == ["model 1, echo", "model 2, echo"]
    shown = capsys.readouterr().out
    assert "growing 2 models" in shown
    assert "model 2, echo: learning from demonstrations: step 3/3" in shown
    together = stored(empty_cache)
    assert len(together) == 2
    assert shared(TWO, console).children == []
    for folder in empty_cache.iterdir():
        folder.rename(folder.with_name("old-" + folder.name))
    for config in TWO:
        assert shared([config], console).children == [], "all runs wait for it: in this process"
    assert len(started) == 2
    assert {name: bytes for name, bytes in stored(empty_cache).items() if name in together} == together


def test_a_model_of_one_run_is_left_to_it(empty_cache: Path, console: Console) -> None:
    loaded = replace(TWO[0], model="some/model")
    runs = {"a": TWO[0], "b": TWO[1], "c": loaded, "d": loaded}
    grown = growths(runs, Path("growing"), 0, console)
    assert grown.children == []
    assert all(grown.done(run) for run in runs)
    assert not empty_cache.exists()


@pytest.fixture
def behaviours(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Name of the job's file or folder, such as `1.json` or `s0` -> what stands in for it does."""
    found: dict[str, str] = {}
    in_place_of_heedful(monkeypatch, found)
    return found


def little() -> Request:
    """Two arms x two seeds. The runs of each arm begin with another model."""
    arms = tuple(Arm(f"model_{at}", train("echo", f"{TINY} --seedling.steps {at}")) for at in (1, 2))
    return Request(Study("little", "What?", arms, (0, 1)), Path("out"), processes=2)


def begun() -> list[str]:
    return sorted(str(path.parent.relative_to("out")) for path in Path("out").glob("*/s*/config.json"))


def test_a_run_waits_for_its_own_model_alone(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours |= {"1.json": "waits for out/model_2/s1/verdict.json"}
    behaviours |= dict.fromkeys(("s0", "s1"), "waits for out/growing/2.grown")
    assert run_study(little(), console) == 0
    assert begun() == ["model_1/s0", "model_1/s1", "model_2/s0", "model_2/s1"]
    shown = capsys.readouterr().out
    assert "growing 2 models, while runs that begin with another one go on" in shown
    assert set(json.loads(Path("out/runs.json").read_text())) == set(begun())


@pytest.mark.parametrize(("how", "code"), [("fails", 5), ("is killed", -15)])
def test_a_model_that_cannot_be_grown_stops_no_run_of_another(
    how: str, code: int, behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours["1.json"] = how
    assert run_study(little(), console) == 1
    assert begun() == ["model_2/s0", "model_2/s1"]
    shown = capsys.readouterr().out
    assert f"model 1, echo failed (exit code {code}); the end of out/growing/1.log:\n  its last words" in shown
    assert "not begun, since what failed is needed for them: model_1/s0, model_1/s1" in shown
    assert "runs failed" not in shown
    behaviours.clear()
    assert run_study(little(), console) == 0
    assert len(begun()) == 4


def test_an_interruption_ends_the_study_before_its_runs(
    behaviours: dict[str, str], console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours |= {"1.json": "waits", "2.json": "waits for listening"}

    def interrupt_when_it_listens() -> None:
        comes(Path("listening").exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_when_it_listens)
    thread.start()
    assert run_study(replace(little(), processes=1), console) == 130
    thread.join()
    assert "interrupted; go on with the same command" in capsys.readouterr().out
    assert begun() == []


def test_what_cannot_be_grown_says_why(empty_cache: Path, started: list[Child], console: Console) -> None:
    grown = shared([settings("frozen_lake", "--env.observation image"), TWO[1]], console)
    run_children(grown.children, 2, lambda states: None)
    assert [grown.done(f"run {at}") for at in range(4)] == [False, True, False, True]
    assert "Expected a seedling that sees" in "".join(grown.children[0].last_words(5))
    assert [folder.name.partition("-")[0] for folder in empty_cache.iterdir()] == ["echo"]


def test_a_study_has_no_arm_that_grows(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps(to_json(StoredJob(GrowthJob(TWO[0])))))
    assert main(["--job", str(job), "--out", str(tmp_path / "run"), "--seed", "0"]) == 0
    arm = {"name": "a", **json.loads(job.read_text())}
    study = {"name": "a", "question": "What?", "arms": [arm], "seeds": [0]}
    (tmp_path / "study.json").write_text(json.dumps(study))
    with pytest.raises(ValueError, match="one of train, fork, found 'grow'"):
        main([str(tmp_path / "study.json")])
